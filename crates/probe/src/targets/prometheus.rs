//! An instant query to Prometheus (or a server with its API): one number, compared with thresholds.
//!
//! A query without a result or with several has no number, so nothing is declared. NaN is what a ratio over a
//! range without data gives: once there was a number, such a period is idle.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::http::{is_secure, HttpClient};
use super::Target;
use crate::measure::Measurement;
use crate::tls::Tls;
use crate::Trouble;

#[derive(Debug, Clone)]
pub struct Config {
    /// Address of the server, `http://host:9090`.
    pub url: String,
    /// TLS, if it is `https://`.
    pub tls: Tls,
    pub query: String,
    /// The probe's timeout.
    pub timeout: Duration,
}

pub struct Prometheus {
    url: String,
    client: HttpClient,
    /// True once the result was a number, so that the query is right.
    known: bool,
}

impl Prometheus {
    pub fn new(config: Config) -> Prometheus {
        let base = config.url.trim_end_matches('/');
        let tls = is_secure(base).then_some(config.tls);
        Prometheus {
            url: format!("{base}/api/v1/query?query={}", encoded(&config.query)),
            client: HttpClient::new(tls, config.timeout),
            known: false,
        }
    }
}

impl Target for Prometheus {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        let (status, text) = self.client.get(&self.url)?;
        let value = Some(answer(status, &text)?).filter(|value| !value.is_nan());
        self.known |= value.is_some();
        if !self.known {
            return Err(Trouble::failed(
                "the result is NaN: no data in its range",
                "check the query on the server's web page; the probe waits for a number",
            ));
        }
        Ok(Measurement {
            value,
            idle: value.is_none(),
            note: self.client.noted(None),
            ..Measurement::default()
        })
    }
}

/// Percent-encodes all characters except letters, digits and `-._~`.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The number in an answer.
fn answer(status: u16, text: &str) -> Result<f64, Trouble> {
    let document: Value = serde_json::from_str(text).map_err(|_| {
        Trouble::failed(
            format!("the answer (status {status}) is not Prometheus's"),
            "name the address of the Prometheus server, such as http://localhost:9090",
        )
    })?;
    if document["status"] != "success" {
        let said = document["error"].as_str().unwrap_or("no reason given");
        return Err(Trouble::failed(
            format!("Prometheus refuses the query: {said}"),
            "try the query on its web page",
        ));
    }
    let data = &document["data"];
    let sample =
        match data["resultType"].as_str() {
            Some("scalar") => &data["result"],
            Some("vector") => match data["result"].as_array().map(Vec::as_slice) {
                Some([one]) => &one["value"],
                Some([]) => return Err(Trouble::failed(
                    "the query has no result",
                    "check that Prometheus scrapes the target; \"or vector(0)\" gives a default",
                )),
                Some(many) => {
                    return Err(Trouble::failed(
                        format!("the query has {} results", many.len()),
                        "aggregate them to one, with max() or sum()",
                    ))
                }
                None => &Value::Null,
            },
            _ => &Value::Null,
        };
    let number = sample[1].as_str().and_then(|text| text.parse::<f64>().ok());
    number.ok_or_else(|| {
        Trouble::failed(
            "the query has no number as its result",
            "ask for an instant vector of one series or a scalar",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector(results: &str) -> String {
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{results}]}}}}"#)
    }

    #[test]
    fn one_series_or_a_scalar_is_a_number() {
        let one = vector(r#"{"metric":{"job":"x"},"value":[1700000000.1,"0.25"]}"#);
        assert_eq!(answer(200, &one), Ok(0.25));
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"+Inf"]}}"#;
        assert_eq!(answer(200, scalar), Ok(f64::INFINITY));
    }

    #[test]
    fn an_answer_without_a_number_is_an_error_with_its_reason() {
        let series = r#"{"metric":{},"value":[1,"2"]}"#;
        for (text, cause) in [
            (vector(""), "no result"),
            (vector(&format!("{series},{series}")), "2 results"),
            (vector(r#"{"metric":{},"value":[1,"many"]}"#), "no number"),
            (
                r#"{"status":"error","error":"parse error"}"#.to_owned(),
                "parse error",
            ),
            ("<html>".to_owned(), "not Prometheus's"),
            ("{}".to_owned(), "no reason given"),
        ] {
            let trouble = answer(400, &text).unwrap_err();
            assert!(trouble.cause.contains(cause), "{trouble:?}");
        }
    }

    #[test]
    fn a_query_is_encoded_in_the_address() {
        assert_eq!(encoded("a{b=\"c d\"}>1"), "a%7Bb%3D%22c%20d%22%7D%3E1");
    }

    proptest! {
        #[test]
        fn any_answer_can_be_read(text in "\\PC*", inner in "\\PC*") {
            let _ = answer(200, &text);
            let _ = answer(200, &vector(&inner));
        }
    }
}
