//! The OpenAPI 3.1 document: the routes of [`ROUTES`] and the schemas of [`crate::api::view`].

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::api::call::{Effect, Needs};
use crate::api::error::ErrorReport;
use crate::api::view;
use crate::serving::route::{Handler, ROUTES, Route};

/// Collects the schemas; utoipa takes them, with their descriptions, from the types themselves.
#[derive(OpenApi)]
#[openapi(components(schemas(
    view::GroupReport,
    view::CheckReport,
    view::DiskChangesReport,
    crate::api::disk_request::DiskChangesRequest,
    crate::api::disk_request::DiskNames,
    crate::api::clearing::ClearReport,
    crate::api::conversion::ConversionReport,
    crate::api::estimate::EstimateReport,
    crate::api::estimate::EstimateRequest,
    view::FileReport,
    view::MapReport,
    view::UsageReport,
    view::MountReport,
    view::EndingReport,
    crate::api::ending::ClosedReport,
    crate::api::ending::SyncedReport,
    view::ActivitySample,
    view::IostatReport,
    view::EventReport,
    view::HealthReport,
    view::TemplateReport,
    view::ScanReport,
    view::CopiedReport,
    view::DumpReport,
    crate::api::operations::OperationsReport,
    crate::api::scrub::ScrubReport,
    crate::api::status::StatusReport,
    crate::api::top::TopReport,
    crate::api::forecast::ForecastReport,
    crate::api::group_settings::GroupSettings,
    crate::api::volume::VolumeReport,
    crate::api::volume::ExportReport,
    ErrorReport
)))]
struct Schemas;

/// The whole document.
#[must_use]
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &*ROUTES {
        let item = paths.entry(route.shape.path).or_insert_with(|| json!({}));
        item[route.shape.method.as_str().to_lowercase()] = operation(route);
    }
    let schemas = serde_json::to_value(Schemas::openapi())
        .map(|document| document["components"]["schemas"].clone())
        .unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Spindle",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the process that serves a disk group can be asked, over HTTP on \
                its Unix socket. Only the user that started it, and root, are answered.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "servers": [{ "url": "http://localhost", "description": "a Unix socket, GROUP.sock in the runtime directory" }],
        "paths": paths,
        "components": { "schemas": schemas }
    })
}

fn operation(route: &Route) -> Value {
    let shape = &route.shape;
    let parameters: Vec<Value> = shape
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name,
                "in": "query",
                "required": parameter.is_needed,
                "description": parameter.description.trim(),
                "schema": { "type": parameter.kind }
            })
        })
        .collect();
    let bytes = json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } });
    let content = match &route.handler {
        Handler::Download => bytes.clone(),
        Handler::Upload => json!({ "application/json": { "schema": {
            "type": "integer", "description": "bytes written" } } }),
        Handler::Text(media_type, _) => {
            json!({ *media_type: { "schema": { "type": "string" } } })
        }
        Handler::Document => json!({ "application/json": { "schema": { "type": "object" } } }),
        Handler::Json(_) | Handler::Alive => {
            json!({ "application/json": { "schema": schema(shape.answer) } })
        }
    };
    let mut operation = json!({
        "summary": shape.summary.trim(),
        "operationId": operation_id(route),
        "x-changes": shape.effect == Effect::Changes,
        "x-needs-process": shape.needs == Needs::Process,
        "parameters": parameters,
        "responses": {
            "200": { "description": "done", "content": content },
            "default": {
                "description": "refused; the class says whose fault it is",
                "content": { "application/json": { "schema": schema("ControlError") } }
            }
        }
    });
    if let Some(body) = &shape.body {
        let content = json!({ "application/json": { "schema": schema(body.schema) } });
        operation["requestBody"] = json!({ "required": body.is_needed, "content": content });
    }
    if matches!(route.handler, Handler::Upload) {
        operation["requestBody"] = json!({ "required": true, "content": bytes });
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let path = route.shape.path.trim_matches('/').replace(['/', '.'], "_");
    format!("{}_{path}", route.shape.method.as_str().to_lowercase())
}

fn schema(name: &str) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    if name == "()" {
        return json!({ "type": "null" });
    }
    match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(item) => json!({ "type": "array", "items": reference(item) }),
        None => reference(name),
    }
}

#[cfg(test)]
mod tests {
    use super::document;

    fn references(value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(serde_json::Value::String(target)) = map.get("$ref") {
                    out.push(target.clone());
                }
                map.values().for_each(|value| references(value, out));
            }
            serde_json::Value::Array(items) => {
                items.iter().for_each(|value| references(value, out));
            }
            _ => {}
        }
    }

    #[test]
    fn every_schema_that_the_document_refers_to_is_in_it() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for target in found {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target} is missing");
        }
    }

    #[test]
    fn a_finding_of_a_scrub_and_one_of_the_health_are_two_schemas() {
        let document = document();
        let properties = |schema: &str, field: &str| {
            let items = &document["components"]["schemas"][schema]["properties"][field]["items"];
            let target = items["$ref"].as_str().unwrap().trim_start_matches('#');
            document.pointer(target).unwrap()["properties"].clone()
        };
        let health = properties("HealthReport", "findings");
        assert!(health.get("advice").is_some(), "{health}");
        let scrub = properties("ScrubReport", "findings");
        assert!(scrub.get("offset_bytes").is_some(), "{scrub}");
    }

    #[test]
    fn every_field_of_a_listing_says_what_it_is() {
        let document = document();
        let group = &document["components"]["schemas"]["GroupReport"]["properties"];
        let described = group["usable_bytes"]["description"].as_str().unwrap();
        assert!(described.contains("negative"), "{described}");
    }
}
