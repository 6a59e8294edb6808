use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::{Access, Asked, LIFETIME, Refusal, Role, is_same, random_text};

const NOW: Duration = Duration::from_secs(60);

fn access() -> Access {
    Access {
        hosts: vec!["127.0.0.1:4000".into(), "localhost:4000".into()],
        look: "a".repeat(64),
        operate: Some("b".repeat(64)),
        begun_ms: 0,
    }
}

fn asked(headers: &[(&'static str, &str)], is_page: bool) -> Asked {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    Asked::of(&map, is_page)
}

fn judged(headers: &[(&'static str, &str)]) -> Result<Role, Refusal> {
    access().judge(&asked(headers, false), NOW)
}

const HERE: (&str, &str) = ("host", "127.0.0.1:4000");

#[test]
fn each_token_gives_its_own_role_and_no_more() {
    let (look, operate) = ("a".repeat(64), "b".repeat(64));
    assert_eq!(judged(&[HERE, ("spindle-token", &look)]), Ok(Role::Look));
    assert_eq!(
        judged(&[HERE, ("spindle-token", &operate)]),
        Ok(Role::Operate)
    );
    assert!(Role::Operate.check_operates().is_ok());
    let refused = Role::Look.check_operates().unwrap_err();
    assert!(refused.message().contains("--operate"), "{refused}");
}

#[test]
fn without_a_token_or_with_a_wrong_one_nothing_is_answered() {
    let look = "a".repeat(64);
    let nearly = format!("{}b", "a".repeat(63));
    for token in ["", "a", &nearly, &format!("{look}a"), &look[1..]] {
        assert_eq!(
            judged(&[HERE, ("spindle-token", token)]),
            Err(Refusal::Token),
            "{token}"
        );
    }
    assert_eq!(judged(&[HERE]), Err(Refusal::Token));
    assert_eq!(
        judged(&[HERE, ("cookie", &format!("spindle-token={look}"))]),
        Err(Refusal::Token)
    );
    let twice = [
        HERE,
        ("spindle-token", look.as_str()),
        ("spindle-token", look.as_str()),
    ];
    assert_eq!(judged(&twice), Err(Refusal::Token));
}

#[test]
fn a_console_without_a_token_to_operate_takes_none_for_it() {
    let access = Access {
        operate: None,
        ..access()
    };
    let given = asked(&[HERE, ("spindle-token", "")], false);
    assert_eq!(access.judge(&given, NOW), Err(Refusal::Token));
    assert_eq!(access.operate_url(), None);
}

#[test]
fn another_host_is_refused_whatever_the_token() {
    let look = "a".repeat(64);
    let token = ("spindle-token", look.as_str());
    for host in [
        "127.0.0.1",
        "127.0.0.1:4001",
        "evil.example:4000",
        "127.0.0.1:4000.evil.example",
        "",
    ] {
        assert_eq!(
            judged(&[("host", host), token]),
            Err(Refusal::Host),
            "{host}"
        );
    }
    assert_eq!(judged(&[token]), Err(Refusal::Host), "none at all");
    assert_eq!(
        judged(&[HERE, ("host", "evil.example"), token]),
        Err(Refusal::Host),
        "two"
    );
    assert_eq!(judged(&[("host", "LocalHost:4000"), token]), Ok(Role::Look));
}

#[test]
fn a_page_of_another_origin_is_refused_whatever_the_token() {
    let look = "a".repeat(64);
    let token = ("spindle-token", look.as_str());
    for origin in [
        "null",
        "http://evil.example",
        "https://127.0.0.1:4000",
        "http://127.0.0.1:4001",
        "http://localhost:4000",
        "",
    ] {
        assert_eq!(
            judged(&[HERE, token, ("origin", origin)]),
            Err(Refusal::Origin),
            "{origin}"
        );
    }
    assert_eq!(
        judged(&[HERE, token, ("origin", "http://127.0.0.1:4000")]),
        Ok(Role::Look)
    );
    for site in ["cross-site", "same-site", "none, same-origin"] {
        assert_eq!(
            judged(&[HERE, token, ("sec-fetch-site", site)]),
            Err(Refusal::Origin),
            "{site}"
        );
    }
    assert_eq!(
        judged(&[HERE, token, ("sec-fetch-site", "same-origin")]),
        Ok(Role::Look)
    );
}

#[test]
fn after_twelve_hours_no_token_is_good_and_the_page_is_not_given_either() {
    let operate = "b".repeat(64);
    let given = asked(&[HERE, ("spindle-token", &operate)], false);
    let nearly = LIFETIME.checked_sub(Duration::from_secs(1)).unwrap();
    assert_eq!(access().judge(&given, nearly), Ok(Role::Operate));
    assert_eq!(access().judge(&given, LIFETIME), Err(Refusal::Expired));
    assert_eq!(
        access().judge(&asked(&[HERE], true), LIFETIME),
        Err(Refusal::Expired)
    );
}

#[test]
fn the_page_itself_needs_no_token_but_the_right_host_and_origin() {
    assert_eq!(access().judge(&asked(&[HERE], true), NOW), Ok(Role::Look));
    let linked = asked(&[HERE, ("sec-fetch-site", "cross-site")], true);
    assert_eq!(access().judge(&linked, NOW), Ok(Role::Look));
    let elsewhere = asked(&[("host", "evil.example")], true);
    assert_eq!(access().judge(&elsewhere, NOW), Err(Refusal::Host));
    let foreign = asked(&[HERE, ("origin", "http://evil.example")], true);
    assert_eq!(access().judge(&foreign, NOW), Err(Refusal::Origin));
}

#[test]
fn tokens_are_long_and_differ() {
    let access = Access::new("127.0.0.1:4000".parse().unwrap(), true).unwrap();
    let (look, operate) = (access.look_url(), access.operate_url().unwrap());
    assert_ne!(look, operate);
    assert_eq!(random_text().unwrap().len(), 64);
    assert!(!format!("{access:?}").contains(look.split_once('#').unwrap().1));
    assert!(is_same("abc", "abc") && !is_same("abc", "abx") && !is_same("abc", "ab"));
}
