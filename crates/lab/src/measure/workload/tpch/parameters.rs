//! Substitution parameters of the queries: drawn from the domains of the specification (clause 2.4),
//! or the validation values that its published answers belong to.

use super::queries::QUERIES;

/// The values for the 22 queries of one stream: name and value, query `n` at `n - 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    of_queries: Vec<Vec<(&'static str, String)>>,
}

impl Parameters {
    /// The same seed and stream give the same values.
    pub fn drawn(seed: u64, stream: u64, scale: f64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ (stream + 1).rotate_left(32));
        let mut dice = Dice(&mut random);
        Self {
            of_queries: first_half(&mut dice, scale)
                .into_iter()
                .chain(second_half(&mut dice))
                .collect(),
        }
    }

    /// Those of the specification's own answers.
    pub fn validation(scale: f64) -> Self {
        let of_queries: [&[(&'static str, &str)]; 22] = [
            &[("delta", "90")],
            &[("size", "15"), ("type", "BRASS"), ("region", "EUROPE")],
            &[("segment", "BUILDING"), ("date", "1995-03-15")],
            &[("date", "1993-07-01")],
            &[("region", "ASIA"), ("date", "1994-01-01")],
            &[
                ("date", "1994-01-01"),
                ("discount", "0.06"),
                ("quantity", "24"),
            ],
            &[("nation1", "FRANCE"), ("nation2", "GERMANY")],
            &[
                ("nation", "BRAZIL"),
                ("region", "AMERICA"),
                ("type", "ECONOMY ANODIZED STEEL"),
            ],
            &[("color", "green")],
            &[("date", "1993-10-01")],
            &[("nation", "GERMANY")],
            &[("mode1", "MAIL"), ("mode2", "SHIP"), ("date", "1994-01-01")],
            &[("word1", "special"), ("word2", "requests")],
            &[("date", "1995-09-01")],
            &[("date", "1996-01-01")],
            &[
                ("brand", "Brand#45"),
                ("type", "MEDIUM POLISHED"),
                ("sizes", "49, 14, 23, 45, 19, 3, 36, 9"),
            ],
            &[("brand", "Brand#23"), ("container", "MED BOX")],
            &[("quantity", "300")],
            &[
                ("quantity1", "1"),
                ("quantity2", "10"),
                ("quantity3", "20"),
                ("brand1", "Brand#12"),
                ("brand2", "Brand#23"),
                ("brand3", "Brand#34"),
            ],
            &[
                ("color", "forest"),
                ("date", "1994-01-01"),
                ("nation", "CANADA"),
            ],
            &[("nation", "SAUDI ARABIA")],
            &[("codes", "'13', '31', '23', '29', '30', '18', '17'")],
        ];
        let mut parameters = Self {
            of_queries: of_queries
                .iter()
                .map(|values| {
                    values
                        .iter()
                        .map(|(name, value)| (*name, (*value).to_owned()))
                        .collect()
                })
                .collect(),
        };
        parameters.of_queries[10].push(("fraction", fraction(scale)));
        parameters
    }

    /// A value of a query, from 1.
    pub fn value(&self, query: usize, name: &str) -> &str {
        self.of_queries[query - 1]
            .iter()
            .find(|(other, _)| *other == name)
            .map_or("", |(_, value)| value)
    }

    /// The same with another value.
    pub fn with(mut self, query: usize, name: &str, value: &str) -> Self {
        for (other, old) in &mut self.of_queries[query - 1] {
            if *other == name {
                value.clone_into(old);
            }
        }
        self
    }

    /// The text of a query, from 1, with its values.
    pub fn text(&self, query: usize) -> String {
        let mut text = QUERIES[query - 1].to_owned();
        for (name, value) in &self.of_queries[query - 1] {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }
}

/// Query 11 asks for parts above this share of the stock's value.
fn fraction(scale: f64) -> String {
    format!("{:.12}", 0.0001 / scale)
}

struct Dice<'a>(&'a mut fastrand::Rng);

impl Dice<'_> {
    fn one<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.0.usize(..words.len())]
    }

    fn number(&mut self, range: std::ops::RangeInclusive<u32>) -> String {
        self.0.u32(range).to_string()
    }

    /// So many different ones.
    fn several<T: Copy>(&mut self, mut of: Vec<T>, count: usize) -> Vec<T> {
        self.0.shuffle(&mut of);
        of.truncate(count);
        of
    }

    /// The first day of a year from 1993 to 1997.
    fn year(&mut self) -> String {
        format!("{}-01-01", self.0.u32(1993..=1997))
    }

    /// The first day of a month, `first` to `last` counted from January 1993.
    fn month(&mut self, first: u32, last: u32) -> String {
        let month = self.0.u32(first..=last);
        format!("{}-{:02}-01", 1993 + month / 12, month % 12 + 1)
    }

    fn brand(&mut self) -> String {
        format!("Brand#{}{}", self.0.u32(1..=5), self.0.u32(1..=5))
    }

    fn nation(&mut self) -> (&'static str, &'static str) {
        NATIONS[self.0.usize(..NATIONS.len())]
    }
}

type Values = Vec<(&'static str, String)>;

fn first_half(dice: &mut Dice<'_>, scale: f64) -> Vec<Values> {
    let nations = dice.several(NATIONS.to_vec(), 2);
    let (nation, region) = dice.nation();
    let one = |name: &'static str, value: String| vec![(name, value)];
    vec![
        one("delta", dice.number(60..=120)),
        vec![
            ("size", dice.number(1..=50)),
            ("type", dice.one(&METALS).to_owned()),
            ("region", dice.one(&REGIONS).to_owned()),
        ],
        vec![
            ("segment", dice.one(&SEGMENTS).to_owned()),
            ("date", format!("1995-03-{:02}", dice.0.u32(1..=31))),
        ],
        one("date", dice.month(0, 57)),
        vec![
            ("region", dice.one(&REGIONS).to_owned()),
            ("date", dice.year()),
        ],
        vec![
            ("date", dice.year()),
            ("discount", format!("0.0{}", dice.0.u32(2..=9))),
            ("quantity", dice.number(24..=25)),
        ],
        vec![
            ("nation1", nations[0].0.to_owned()),
            ("nation2", nations[1].0.to_owned()),
        ],
        vec![
            ("nation", nation.to_owned()),
            ("region", region.to_owned()),
            (
                "type",
                format!(
                    "{} {} {}",
                    dice.one(&SIZES),
                    dice.one(&FINISHES),
                    dice.one(&METALS)
                ),
            ),
        ],
        one("color", dice.one(&COLORS).to_owned()),
        one("date", dice.month(1, 24)),
        vec![
            ("nation", dice.nation().0.to_owned()),
            ("fraction", fraction(scale)),
        ],
    ]
}

fn second_half(dice: &mut Dice<'_>) -> Vec<Values> {
    let modes = dice.several(MODES.to_vec(), 2);
    let sizes: Vec<String> = dice
        .several((1..=50).collect(), 8)
        .iter()
        .map(u32::to_string)
        .collect();
    let codes: Vec<String> = dice
        .several((10..=34).collect::<Vec<u32>>(), 7)
        .iter()
        .map(|code| format!("'{code}'"))
        .collect();
    let one = |name: &'static str, value: String| vec![(name, value)];
    vec![
        vec![
            ("mode1", modes[0].to_owned()),
            ("mode2", modes[1].to_owned()),
            ("date", dice.year()),
        ],
        vec![
            ("word1", dice.one(&FIRST_WORDS).to_owned()),
            ("word2", dice.one(&SECOND_WORDS).to_owned()),
        ],
        one("date", dice.month(0, 59)),
        one("date", dice.month(0, 57)),
        vec![
            ("brand", dice.brand()),
            (
                "type",
                format!("{} {}", dice.one(&SIZES), dice.one(&FINISHES)),
            ),
            ("sizes", sizes.join(", ")),
        ],
        vec![
            ("brand", dice.brand()),
            (
                "container",
                format!("{} {}", dice.one(&BULKS), dice.one(&CONTAINERS)),
            ),
        ],
        one("quantity", dice.number(312..=315)),
        vec![
            ("quantity1", dice.number(1..=10)),
            ("quantity2", dice.number(10..=20)),
            ("quantity3", dice.number(20..=30)),
            ("brand1", dice.brand()),
            ("brand2", dice.brand()),
            ("brand3", dice.brand()),
        ],
        vec![
            ("color", dice.one(&COLORS).to_owned()),
            ("date", dice.year()),
            ("nation", dice.nation().0.to_owned()),
        ],
        one("nation", dice.nation().0.to_owned()),
        one("codes", codes.join(", ")),
    ]
}

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
const SEGMENTS: [&str; 5] = [
    "AUTOMOBILE",
    "BUILDING",
    "FURNITURE",
    "MACHINERY",
    "HOUSEHOLD",
];
const SIZES: [&str; 6] = ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"];
const FINISHES: [&str; 5] = ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"];
const METALS: [&str; 5] = ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"];
const BULKS: [&str; 5] = ["SM", "LG", "MED", "JUMBO", "WRAP"];
const CONTAINERS: [&str; 8] = ["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const FIRST_WORDS: [&str; 4] = ["special", "pending", "unusual", "express"];
const SECOND_WORDS: [&str; 4] = ["packages", "requests", "accounts", "deposits"];

/// Nations with their regions.
const NATIONS: [(&str, &str); 25] = [
    ("ALGERIA", "AFRICA"),
    ("ARGENTINA", "AMERICA"),
    ("BRAZIL", "AMERICA"),
    ("CANADA", "AMERICA"),
    ("CHINA", "ASIA"),
    ("EGYPT", "MIDDLE EAST"),
    ("ETHIOPIA", "AFRICA"),
    ("FRANCE", "EUROPE"),
    ("GERMANY", "EUROPE"),
    ("INDIA", "ASIA"),
    ("INDONESIA", "ASIA"),
    ("IRAN", "MIDDLE EAST"),
    ("IRAQ", "MIDDLE EAST"),
    ("JAPAN", "ASIA"),
    ("JORDAN", "MIDDLE EAST"),
    ("KENYA", "AFRICA"),
    ("MOROCCO", "AFRICA"),
    ("MOZAMBIQUE", "AFRICA"),
    ("PERU", "AMERICA"),
    ("ROMANIA", "EUROPE"),
    ("RUSSIA", "EUROPE"),
    ("SAUDI ARABIA", "MIDDLE EAST"),
    ("UNITED KINGDOM", "EUROPE"),
    ("UNITED STATES", "AMERICA"),
    ("VIETNAM", "ASIA"),
];

/// The words that names of parts are made of.
#[rustfmt::skip]
const COLORS: [&str; 92] = [
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue",
    "blush", "brown", "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral",
    "cornflower", "cornsilk", "cream", "cyan", "dark", "deep", "dim", "dodger", "drab",
    "firebrick", "floral", "forest", "frosted", "gainsboro", "ghost", "goldenrod", "green",
    "grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon",
    "light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint",
    "misty", "moccasin", "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya", "peach",
    "peru", "pink", "plum", "powder", "puff", "purple", "red", "rose", "rosy", "royal", "saddle",
    "salmon", "sandy", "seashell", "sienna", "sky", "slate", "smoke", "snow", "spring", "steel",
    "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white", "yellow",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_every_query_is_drawn_and_given_for_validation() {
        for seed in 0..200 {
            for parameters in [
                Parameters::drawn(seed, 0, 0.01),
                Parameters::validation(0.01),
            ] {
                for query in 1..=22 {
                    let text = parameters.text(query);
                    assert!(!text.contains(['{', '}']), "Q{query}: {text}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_asks_the_same_and_another_stream_asks_something_else() {
        let first = Parameters::drawn(7, 0, 1.0);
        assert_eq!(first, Parameters::drawn(7, 0, 1.0));
        assert_ne!(first, Parameters::drawn(7, 1, 1.0));
        assert_ne!(first, Parameters::drawn(8, 0, 1.0));
    }

    #[test]
    fn months_and_fractions_are_those_of_the_specification() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut dice = Dice(&mut random);
        for _ in 0..500 {
            let month = dice.month(0, 57);
            assert!(
                ("1993-01-01"..="1997-10-01").contains(&month.as_str()),
                "{month}"
            );
            let later = dice.month(1, 24);
            assert!(
                ("1993-02-01"..="1995-01-01").contains(&later.as_str()),
                "{later}"
            );
        }
        assert_eq!(
            Parameters::validation(1.0).value(11, "fraction"),
            "0.000100000000"
        );
        assert_eq!(
            Parameters::validation(0.01).value(11, "fraction"),
            "0.010000000000"
        );
    }
}
