use super::*;

const SIZE_BYTES: u64 = 0x1_0000_0000;
const FIXED: u32 = 3;

fn offer() -> Offer {
    Offer {
        name: "data:/vm".to_owned(),
        description: "a volume".to_owned(),
        size_bytes: SIZE_BYTES,
        is_read_only: false,
    }
}

fn fixed() -> Negotiation {
    Negotiation::begin(offer(), FIXED).unwrap()
}

/// Type and data of each reply to an option.
fn replies(option: u32, mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut replies = Vec::new();
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        assert_eq!(number(&bytes[8..12]), option);
        let length = number(&bytes[16..20]) as usize;
        replies.push((number(&bytes[12..16]), bytes[20..20 + length].to_vec()));
        bytes = &bytes[20 + length..];
    }
    replies
}

fn ask(negotiation: &mut Negotiation, option: u32, data: &[u8]) -> (Step, Vec<(u32, Vec<u8>)>) {
    let mut out = Vec::new();
    let step = negotiation.answer(option, data, &mut out);
    (step, replies(option, &out))
}

fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name);
    data.extend(u16::try_from(wanted.len()).unwrap().to_be_bytes());
    for kind in wanted {
        data.extend(kind.to_be_bytes());
    }
    data
}

fn context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name);
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    for query in queries {
        put_string(&mut data, query);
    }
    data
}

/// The only reply is an error of that type, and the conversation goes on.
fn assert_refused(answer: (Step, Vec<(u32, Vec<u8>)>), reply: u32) {
    assert_eq!(answer.0, Step::Next);
    let kinds: Vec<u32> = answer.1.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [reply]);
}

#[test]
fn the_greeting_is_newstyle_and_fixed() {
    assert_eq!(greeting(), b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn a_client_flag_that_was_not_offered_ends_it() {
    for flags in [4, 1 << 31, u32::MAX] {
        assert!(Negotiation::begin(offer(), flags).is_err());
    }
}

#[test]
fn an_option_is_its_number_and_a_length() {
    let bytes = b"IHAVEOPT\0\0\0\x07\0\0\x01\0";
    let expected = OptionHeader {
        option: 7,
        length_bytes: 256,
    };
    assert_eq!(OptionHeader::parse(bytes), Ok(expected));
    assert!(OptionHeader::parse(b"IHAVEOPS\0\0\0\x07\0\0\0\0").is_err());
}

#[test]
fn export_name_is_answered_by_size_and_flags_with_zeroes_unless_waived() {
    for (flags, zeroes) in [(FIXED, 0), (1, 124), (0, 124)] {
        for name in ["data:/vm", ""] {
            let mut negotiation = Negotiation::begin(offer(), flags).unwrap();
            let mut out = Vec::new();
            let step = negotiation.answer(option::EXPORT_NAME, name.as_bytes(), &mut out);
            assert_eq!(step, Step::Serve(Agreed::default()));
            assert_eq!(out[..8], SIZE_BYTES.to_be_bytes());
            // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, CAN_MULTI_CONN.
            assert_eq!(out[8..10], 0b1_0110_1101u16.to_be_bytes());
            assert_eq!(out.len(), 10 + zeroes);
        }
    }
}

#[test]
fn an_unknown_name_ends_a_client_that_knows_no_errors() {
    for name in [&b"other"[..], &[0xff], &[b'a'; 5000]] {
        let mut out = Vec::new();
        let step = fixed().answer(option::EXPORT_NAME, name, &mut out);
        assert_eq!((step, out.len()), (Step::End, 0));
    }
}

#[test]
fn who_is_not_fixed_can_only_name_an_export() {
    for option in [option::LIST, option::GO, option::ABORT, 99] {
        let mut negotiation = Negotiation::begin(offer(), 0).unwrap();
        assert_eq!(ask(&mut negotiation, option, &[]), (Step::End, vec![]));
    }
}

#[test]
fn abort_is_acknowledged_whatever_it_carries() {
    let answer = ask(&mut fixed(), option::ABORT, b"why");
    assert_eq!(answer, (Step::End, vec![(option_reply::ACK, vec![])]));
}

#[test]
fn list_names_the_export_and_takes_no_data() {
    let (step, told) = ask(&mut fixed(), option::LIST, &[]);
    assert_eq!(step, Step::Next);
    let server = b"\0\0\0\x08data:/vma volume".to_vec();
    let expected = [(option_reply::SERVER, server), (option_reply::ACK, vec![])];
    assert_eq!(told, expected);
    assert_refused(
        ask(&mut fixed(), option::LIST, b"x"),
        option_reply::ERR_INVALID,
    );
}

#[test]
fn info_and_go_tell_the_same_and_only_go_begins() {
    let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 99];
    let (step, told) = ask(&mut fixed(), option::INFO, &go("data:/vm", &wanted));
    assert_eq!(step, Step::Next);
    let (step, again) = ask(&mut fixed(), option::GO, &go("data:/vm", &wanted));
    assert_eq!(step, Step::Serve(Agreed::default()));
    assert_eq!(told, again);
    let of_kind = |kind: u16| {
        let is_it = |data: &&Vec<u8>| data.starts_with(&kind.to_be_bytes());
        told.iter().map(|(_, data)| data).find(is_it).unwrap()[2..].to_vec()
    };
    assert_eq!(of_kind(info::EXPORT)[..8], SIZE_BYTES.to_be_bytes());
    assert_eq!(of_kind(info::NAME), b"data:/vm");
    assert_eq!(of_kind(info::DESCRIPTION), b"a volume");
    assert_eq!(
        of_kind(info::BLOCK_SIZE),
        [0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0]
    );
    assert_eq!(told.len(), 5, "and the end: {told:?}");
    assert_eq!(told[4], (option_reply::ACK, vec![]));
}

#[test]
fn the_default_export_is_the_only_one() {
    let (step, _) = ask(&mut fixed(), option::GO, &go("", &[]));
    assert_eq!(step, Step::Serve(Agreed::default()));
    let unknown = ask(&mut fixed(), option::GO, &go("data:/other", &[]));
    assert_refused(unknown, option_reply::ERR_UNKNOWN);
}

#[test]
fn data_of_go_that_are_cut_or_too_long_are_invalid() {
    let good = go("data:/vm", &[info::NAME, info::BLOCK_SIZE]);
    for length in 0..good.len() {
        let answer = ask(&mut fixed(), option::GO, &good[..length]);
        assert_refused(answer, option_reply::ERR_INVALID);
    }
    let mut longer = good.clone();
    longer.push(0);
    assert_refused(
        ask(&mut fixed(), option::GO, &longer),
        option_reply::ERR_INVALID,
    );
    let mut no_text = good;
    no_text[4] = 0xff;
    assert_refused(
        ask(&mut fixed(), option::GO, &no_text),
        option_reply::ERR_INVALID,
    );
    let long = go(&"a".repeat(4097), &[]);
    assert_refused(
        ask(&mut fixed(), option::GO, &long),
        option_reply::ERR_INVALID,
    );
}

#[test]
fn structured_replies_are_granted_and_then_told() {
    let mut negotiation = fixed();
    let refused = ask(&mut negotiation, option::STRUCTURED_REPLY, b"x");
    assert_refused(refused, option_reply::ERR_INVALID);
    let granted = ask(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    assert_refused(granted, option_reply::ACK);
    let (step, told) = ask(&mut negotiation, option::GO, &go("", &[]));
    let agreed = Agreed {
        is_structured: true,
        has_allocation: false,
    };
    assert_eq!(step, Step::Serve(agreed));
    assert_eq!(told[0].1[10..12], 0b1_1110_1101u16.to_be_bytes(), "with DF");
}

#[test]
fn an_export_only_for_reading_says_so() {
    let offer = Offer {
        is_read_only: true,
        ..offer()
    };
    let mut negotiation = Negotiation::begin(offer, FIXED).unwrap();
    let (_, told) = ask(&mut negotiation, option::INFO, &go("", &[]));
    assert_eq!(told[0].1[10..12], 0b1_0000_1111u16.to_be_bytes());
}

#[test]
fn a_metadata_context_is_chosen_after_structured_replies_and_for_its_name() {
    let mut negotiation = fixed();
    let asked = context("data:/vm", &["qemu:dirty-bitmap", "base:allocation"]);
    let early = ask(&mut negotiation, option::SET_META_CONTEXT, &asked);
    assert_refused(early, option_reply::ERR_INVALID);
    let _ = ask(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    let chosen = b"\0\0\0\x01base:allocation".to_vec();
    let expected = vec![
        (option_reply::META_CONTEXT, chosen),
        (option_reply::ACK, vec![]),
    ];
    let answer = ask(&mut negotiation, option::SET_META_CONTEXT, &asked);
    assert_eq!(answer, (Step::Next, expected));
    // A look at what there is changes nothing.
    for (queries, count) in [(&[][..], 2), (&["base:"], 2), (&["x-other:a"], 1)] {
        let data = context("", queries);
        let (_, told) = ask(&mut negotiation, option::LIST_META_CONTEXT, &data);
        assert_eq!(told.len(), count, "{queries:?}");
    }
    assert!(negotiation.agreed().has_allocation);
    let _ = ask(&mut negotiation, option::GO, &go("", &[]));
    assert!(!negotiation.agreed().has_allocation, "of another name");
}

#[test]
fn what_was_chosen_is_gone_with_the_next_choice_even_where_that_fails() {
    for next in [
        context("data:/vm", &[]),
        context("data:/vm", &["base:"]),
        context("other", &["base:allocation"]),
        vec![0, 0, 0, 9],
        context("", &["base:allocation"])[..20].to_vec(),
    ] {
        let mut negotiation = fixed();
        let _ = ask(&mut negotiation, option::STRUCTURED_REPLY, &[]);
        let first = context("data:/vm", &["base:allocation"]);
        let _ = ask(&mut negotiation, option::SET_META_CONTEXT, &first);
        assert!(negotiation.agreed().has_allocation);
        let _ = ask(&mut negotiation, option::SET_META_CONTEXT, &next);
        assert!(!negotiation.agreed().has_allocation, "{next:?}");
    }
}

#[test]
fn a_count_of_queries_that_are_not_there_is_invalid() {
    let mut negotiation = fixed();
    let _ = ask(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    let mut data = context("", &[]);
    data[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let answer = ask(&mut negotiation, option::LIST_META_CONTEXT, &data);
    assert_refused(answer, option_reply::ERR_INVALID);
}

#[test]
fn tls_and_what_nobody_knows_are_unsupported() {
    for option in [option::STARTTLS, 4, 11, 0, u32::MAX] {
        assert_refused(ask(&mut fixed(), option, &[]), option_reply::ERR_UNSUP);
    }
}

#[test]
fn an_option_that_is_too_long_is_told_so() {
    let mut out = Vec::new();
    let step = fixed().answer_too_big(option::GO, &mut out);
    let told = replies(option::GO, &out);
    assert_refused((step, told), option_reply::ERR_TOO_BIG);
    let step = fixed().answer_too_big(option::EXPORT_NAME, &mut Vec::new());
    assert_eq!(step, Step::End);
}
