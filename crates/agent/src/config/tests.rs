//! Valid configurations are accepted, and the others are refused with their reason.

use super::*;
use crate::error::Exit;
use justitia_cgroup::gate::Order;
use justitia_discover::kubernetes::Nri;
use justitia_policy::config::MemoplightConfig;

fn parse(text: &str) -> Result<Settings> {
    Settings::parse(text, Path::new("j.toml"))
}

fn refusal(text: &str) -> (String, String) {
    let error = parse(text).unwrap_err();
    assert_eq!(error.exit, Exit::Usage);
    (error.cause, error.remedy)
}

#[test]
fn an_empty_configuration_is_the_default() {
    assert_eq!(parse("").unwrap(), Settings::default());
}

#[test]
fn the_lists_of_modes_and_objectives_name_every_variant() {
    let (_, remedy) = refusal("mode = \"x\"");
    assert_eq!(remedy, format!("use one of: {}", Mode::NAMES.join(", ")));
    assert_eq!(parse("mode = 'memoplight'").unwrap().mode, Mode::Memoplight);
    let (_, remedy) = refusal("objective = \"x\"");
    assert_eq!(
        remedy,
        format!("use one of: {}", Objective::NAMES.join(", "))
    );
}

/// A key that is commented out in the example shows its default. Lists, tables and `[weights]` have no default to
/// show: those are examples.
#[test]
fn the_packaged_example_shows_the_defaults() {
    let example = include_str!("../../../../packaging/justitia.toml");
    let mut section = "";
    let mut text = String::new();
    let mut shown = Vec::new();
    for line in example.lines() {
        if line.starts_with('[') {
            section = line;
            text.push_str(line);
        } else if let Some((key, value)) = line.strip_prefix('#').and_then(|l| l.split_once(" = "))
        {
            let is_key = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let is_example = value.starts_with('[') || value.starts_with("{ ");
            if is_key && !is_example && section != "[weights]" {
                text.push_str(&line[1..]);
                shown.push(key);
            }
        }
        text.push('\n');
    }
    let settings = parse(&text).unwrap();
    let defaults = Settings::default();
    assert_eq!(settings.socket(), defaults.socket());
    let socket = None;
    assert_eq!(Settings { socket, ..settings }, defaults, "{text}");
    // Every parameter of the feedback and of mode memoplight is shown.
    let mut parameters = toml::Table::try_from(FeedbackConfig::default()).unwrap();
    parameters.extend(toml::Table::try_from(MemoplightConfig::default()).unwrap());
    for key in [
        "mode",
        "objective",
        "interval",
        "observer",
        "max_loss",
        "color_ttl",
        "color_period",
        "color_percent",
        "color_yellow",
        "listen",
        "state_dir",
        "socket",
    ]
    .into_iter()
    .chain(parameters.keys().map(String::as_str))
    {
        assert!(
            shown.contains(&key),
            "{key} is not in the example: {shown:?}"
        );
    }
}

#[test]
fn every_setting_takes_effect() {
    let settings = parse(
        r#"
        mode = "justitia"
        objective = "strict"
        interval = "500ms"
        manage = ["/app/*", "/vm/**"]
        exclude = ["/app/backup"]
        state_dir = "/tmp/state"
        socket = "/tmp/socket"
        listen = "[::1]:80"
        color_ttl = "30s"
        color_period = "500ms"
        color_percent = 5
        color_yellow = false
        [memoplight]
        working_set = true
        [weights]
        "/app/*" = 200
        "/app/db" = 800
        [feedback]
        smoothing_s = 2
        gain_limit = 4.5
        "#,
    )
    .unwrap();
    assert_eq!(settings.mode, Mode::Justitia);
    assert_eq!(settings.objective, Objective::Strict);
    assert_eq!(settings.interval, Duration::from_millis(500));
    assert_eq!(settings.manage, ["/app/*", "/vm/**"]);
    assert_eq!(settings.exclude, ["/app/backup"]);
    assert_eq!(settings.socket(), Path::new("/tmp/socket"));
    assert_eq!(settings.listen, "[::1]:80".parse().ok());
    assert!((settings.feedback.smoothing_s - 2.0).abs() < 1e-9);
    assert!((settings.feedback.gain_limit - 4.5).abs() < 1e-9);
    assert_eq!(settings.color_ttl, Duration::from_secs(30));
    let colors = settings.policy().colors;
    assert!((colors.period_s - 0.5).abs() < 1e-9 && (colors.percent - 5.0).abs() < 1e-9);
    assert!(!colors.yellow && settings.memoplight.working_set);
    assert_eq!(
        settings.weights[0],
        ("/app/db".into(), Weight::new(800).unwrap())
    );
    assert_eq!(
        settings.weights[1],
        ("/app/*".into(), Weight::new(200).unwrap())
    );
}

#[test]
fn an_exact_path_wins_over_a_glob_and_a_longer_glob_over_a_shorter() {
    let settings = parse("[weights]\n'/**' = 1\n'/app/*' = 2\n'/app/a' = 3\n").unwrap();
    let order: Vec<u32> = settings
        .weights
        .iter()
        .map(|(_, weight)| weight.get())
        .collect();
    assert_eq!(order, [3, 2, 1]);
}

#[test]
fn a_weight_out_of_range_is_refused_with_its_line() {
    for weight in ["0", "10001", "-1", "1.5", "'heavy'", "99999999999"] {
        let (cause, remedy) = refusal(&format!("[weights]\n'/ok' = 1\n'/app/db' = {weight}\n"));
        assert!(cause.starts_with("j.toml:3: weight "), "{cause}");
        assert!(cause.contains(" of /app/db is not"), "{cause}");
        assert_eq!(remedy, WEIGHT_REMEDY);
    }
}

/// Wrong configurations: the text, in which `; ` ends a line; the cause, from the number of its line on and perhaps
/// cut off with `...`; and a part of the remedy.
const REFUSED: &str = r#"
mode = 'observe'; manages = []      | 2: unknown key manages                             | did you mean manage?
; [feedback]; smothing_s = 1        | 3: unknown key smothing_s                          | did you mean smoothing_s?
[wieghts]; '/a' = 1                 | 1: unknown key wieghts                             | did you mean weights?
; mode = 'proportion'               | 2: unknown mode proportion                         | did you mean proportional?
objective = 'zzz'                   | 1: unknown objective zzz                           | use one of: fair, strict
objective = 5                       | 1: objective is not a text in quotes               | write
mode = 3                            | 1: mode is not a text in quotes                    | mode = "proportional"
; ; mode =                          | 3: ...                                             | TOML
weights = 3                         | 1: weights is not a table                          | weights = a table
; interval = 1                      | 2: interval is not a text in quotes                | interval = "1s"
interval = 'soon'                   | 1: interval soon is not a time...                  | 1s
interval = '1ms'                    | 1: interval 1ms is not a time from 100ms to 60s    | 1s
manage = '/app'                     | 1: manage is not a list                            | manage = ["/app/*"]
trust = [-1]                        | 1: trust is not a whole number from 0              | trust = [1000]
state_dir = 5                       | 1: state_dir is not a text in quotes               | "/run/justitia"
state_dir = ''                      | 1: state_dir "" is not an absolute path            | "/run/justitia"
state_dir = 'run'                   | 1: state_dir "run" is not an absolute path         | "/run/justitia"
socket = ''                         | 1: socket "" is not an absolute path               | "/run/justitia/agent.sock"
; listen = "localhost:80"           | 2: listen localhost:80...                          | 127.0.0.1:9619
listen = 9619                       | 1: listen is not a text in quotes                  | 127.0.0.1:9619
; observer = "ebpf"                 | 2: unknown observer ebpf                           | bpf
max_loss = '3'                      | 1: max_loss 3 is not a part...                     | 3%
max_loss = '-1%'                    | 1: max_loss -1% is not a part...                   | 3%
max_loss = '99%'                    | 1: max_loss 99% is not a part...                   | 3%
max_loss = 3                        | 1: max_loss is not a text in quotes                | 3%
maxloss = '3%'                      | 1: unknown key maxloss                             | did you mean max_loss?
color_ttl = 5                       | 1: color_ttl is not a text in quotes               | "5s"
color_ttl = 'soon'                  | 1: color_ttl soon is not a time...                 | 1s
color_ttl = '2h'                    | 1: color_ttl 2h is not a time from 100ms to 1h     | 1s
color_period = '10ms'               | 1: color_period 10ms is not a time...              | 1s
color_period = '2m'                 | 1: color_period 2m is not a time from 100ms to 60s | 1s
color_percent = 0                   | 1: color_percent 0 is not a number...              | 2, the paper's
color_percent = 51                  | 1: color_percent 51 is not a number above 0 and up to 50 | 2, the paper's
; color_percent = 'two'             | 2: color_percent is not a number                   | color_percent = a number
color_yellow = 1                    | 1: color_yellow is not true or false               | write
[weights]; '/a' = 10001             | 2: weight 10001 of /a is not a number from 1 to 10000 | 1 to 10000
feedback = { dead_band = 'x' }      | 1: dead_band is not a number                       | dead_band = a number
[feedback]; gain_limit = -1         | 2: gain_limit -1 is not a number from 1            | larger
[feedback]; gain_limit = 0.5        | 2: gain_limit 0.5 is not a number from 1           | larger
[feedback]; dead_band = -1.0        | 2: dead_band -1 is not a number from 0             | larger
[memoplight]; working_sets = true   | 2: unknown key working_sets                        | did you mean working_set?
[memoplight]; working_set = 1       | 2: working_set is not true or false                | write
[guard]; enable = true              | 2: unknown key enable                              | enabled
[guard]; enabled = 1                | 2: enabled is not true or false                    | true or false
[guard]; reserve = '95%'            | 2: reserve 95%...                                  | 2%
[guard]; reserve = 5                | 2: reserve is not a text in quotes                 | 2%
[guard]; reserve = '2000000T'       | 2: reserve 2000000T is not a size up to 1048576T   | 4G
[guard]; root_share = 'all'         | 2: root_share all...                               | 512M
[gate]; enable = true               | 2: unknown key enable                              | enabled
[gate]; enabled = 1                 | 2: enabled is not true or false                    | true or false
[gate]; order = 'strid'             | 2: unknown order strid                             | did you mean stride?
[gate]; aging = -1                  | 2: aging -1 is not a number from 0 to 10000        | 100
[gate]; aging = 'a'                 | 2: aging "a" is not a number from 0 to 10000       | 100
[disk]; iocost = 'al'               | 2: iocost is "al"                                  | use true, false or "all"
[disk]; iocost = 1                  | 2: iocost is 1                                     | "all"
[disk.models]; '' = 'rbps=1'        | 1: a model's disk has no name                      | nvme0n1
[kubernetes]; nri = 'of'            | 2: nri of is not auto, off or the path of a socket | /run/nri/nri.sock
[kubernetes]; nri = 5               | 2: nri is not a text in quotes                     | write nri = "auto"
[kubernetes]; besteffort = 5        | 2: unknown key besteffort                          | best_effort
[kubernetes]; burstable = 0         | 2: weight 0 of burstable is not a number from 1 to 10000 | 100
[kubernetes]; caps = { shop = 'x' } | 2: weight "x" of shop is not a number from 1 to 10000 | 100
[kubernetes]; caps = { Shop = 3 }   | 2: "Shop" is not the name of a namespace           | a namespace's name
[kubernetes]; caps = { '' = 3 }     | 2: "" is not the name of a namespace               | a namespace's name
[doctor]; silences = []             | 2: unknown key silences                            | mean silence?
[doctor]; silence = 'all'           | 2: silence is not a list                           | reason =
[doctor]; silence = [; { check = 'swap-off', reason = 'x' }] | 3: unknown check swap-off | mean swap-none?
[doctor]; silence = [; ; { check = 'swap-none' }] | 4: an entry has no reason            | reason =
[doctor]; silence = [{ check = 'swap-none', reason = ' ' }] | 2: an entry has no reason  | reason =
[doctor]; silence = [{ reason = 'x' }] | 2: an entry has no check                        | check =
[doctor]; silence = [{ check = 'swap-none', why = 'x' }] | 2: unknown key why            | check, group, reason
[doctor]; silence = [{ check = 'swap-none', group = '/a[1]', reason = 'x' }] | 2: glob "/a[1]"... | /app/*
"#;

#[test]
fn a_wrong_entry_is_refused_with_its_line_its_key_and_what_is_valid() {
    for row in REFUSED.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [text, cause, remedy] = cells[..] else {
            panic!("{row}")
        };
        let (found, advice) = refusal(&text.replace("; ", "\n"));
        let cause = format!("j.toml:{cause}");
        match cause.strip_suffix("...") {
            Some(begin) => assert!(found.starts_with(begin), "{row}: {found}"),
            None => assert_eq!(found, cause, "{row}"),
        }
        assert!(advice.contains(remedy), "{row}: {advice}");
        assert!(!found.contains('\n') && !advice.contains('\n'));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Settings::load(Path::new("/nonexistent/j.toml")).unwrap_err();
    assert_eq!(error.exit, Exit::Failed);
    assert!(error.cause.contains("/nonexistent/j.toml"), "{error}");
}

#[test]
fn a_page_is_at_an_address_or_off() {
    assert_eq!(parse("listen = \"off\"").unwrap().listen, None);
    let unix = parse("listen = \"unix:/run/page.sock\"").unwrap();
    assert_eq!(unix.listen, "unix:/run/page.sock".parse().ok());
}

#[test]
fn a_page_speaks_tls_with_a_certificate_and_its_key_or_not_at_all() {
    let tls = "{ certificate = \"/c.pem\", key = \"/k.pem\" }";
    let files = parse(&format!("tls = {tls}")).unwrap().tls.unwrap();
    assert_eq!(files.certificate, Path::new("/c.pem"));
    assert_eq!(files.key, Path::new("/k.pem"));
    assert_eq!(parse("").unwrap().tls, None);
    for wrong in [
        "{}",
        "{ key = \"/k.pem\" }",
        "{ certificate = \"c.pem\", key = \"/k.pem\" }",
        "true",
    ] {
        let (cause, remedy) = refusal(&format!("tls = {wrong}"));
        assert!(cause.starts_with("j.toml:1: tls is not"), "{cause}");
        assert!(remedy.contains("certificate = "), "{remedy}");
    }
    assert!(refusal("tls = { certificat = \"/c.pem\" }")
        .0
        .contains("certificat"));
}

#[test]
fn max_loss_is_a_percentage_or_off() {
    let percent = |text: &str| {
        let settings = parse(text).unwrap();
        format!("{}", settings.max_loss)
    };
    assert_eq!(percent(""), "3");
    assert_eq!(percent("max_loss = '2.5 %'"), "2.5");
    for off in ["max_loss = '0%'", "max_loss = 'off'"] {
        assert_eq!(percent(off), "0");
    }
}

#[test]
fn times_have_units() {
    let seconds = |text| {
        parse_time(
            "--for",
            text,
            Duration::from_millis(100)..=Duration::from_secs(86_400),
        )
        .map(|time| time.as_secs_f64())
    };
    for (text, expected) in [
        ("500ms", 0.5),
        ("3", 3.0),
        ("3s", 3.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
    ] {
        assert_eq!(seconds(text), Ok(expected), "{text}");
    }
    for text in ["", "s", "-1s", "1d", "25h", "nan", "inf"] {
        let (cause, remedy) = seconds(text).unwrap_err();
        assert!(
            cause.starts_with("--for ") && !remedy.is_empty(),
            "{text}: {cause}"
        );
    }
}

#[test]
fn an_observer_is_one_of_three() {
    assert_eq!(
        parse("observer = \"proc\"").unwrap().observer,
        Observing::Proc
    );
    assert_eq!(parse("").unwrap().observer, Observing::Auto);
}

#[test]
fn the_gate_is_off_unless_asked() {
    assert!(!parse("").unwrap().gate.enabled);
    let gate = parse("[gate]\nenabled = true\norder = 'aging'\naging = 10\n")
        .unwrap()
        .gate;
    let expected = GateSettings {
        enabled: true,
        order: Order::Aging,
        aging: 10,
    };
    assert_eq!(gate, expected);
}

#[test]
fn pods_have_weights_by_class_and_caps_by_namespace() {
    let text = "[kubernetes]\nnri = '/run/k3s/nri.sock'\nburstable = 300\ncaps = { '*' = 200 }\n\
                [kubernetes.caps]\nshop = 800\n";
    assert!(parse(text).is_err(), "a key given twice");
    let text = "[kubernetes]\nnri = '/run/k3s/nri.sock'\nburstable = 300\n\
                [kubernetes.caps]\nshop = 800\n'*' = 200\n";
    let kubernetes = parse(text).unwrap().kubernetes;
    assert_eq!(kubernetes.nri, Nri::At("/run/k3s/nri.sock".into()));
    let KubernetesConfig {
        guaranteed,
        burstable,
        best_effort,
        ..
    } = kubernetes;
    let weights = [guaranteed, burstable, best_effort];
    assert_eq!(weights.map(Weight::get), [400, 300, 50]);
    let caps = kubernetes.caps.iter();
    let caps: Vec<_> = caps.map(|(name, cap)| (name.as_str(), cap.get())).collect();
    assert_eq!(caps, [("*", 200), ("shop", 800)]);
}
