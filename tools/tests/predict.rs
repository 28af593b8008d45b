//! Predictions from the command line: from runs at test size, and from a report.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn farcore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore"))
        .args(arguments)
        .output()
        .expect("the command")
}

fn json(output: &Output) -> Value {
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn runs_calibrate_the_model_and_measure_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let answer = json(&farcore(&[
        "tune",
        "--predict",
        "cores=8,nodes=2,link=10Gb",
        "--keys-per-core",
        "5000",
        "--hot-ops",
        "8000",
        "--repeats",
        "1",
        "--no-prefault",
        "--json",
        "--plot",
        plot.to_str().unwrap(),
    ]));
    let steps = answer["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4, "{answer}");
    for step in steps {
        assert!(step["requests_s"].as_f64() > Some(0.0), "{step}");
    }
    assert!(answer["limit"]["station"].is_string(), "{answer}");
    assert!(answer["origin"]["commit"].is_string(), "{answer}");
    assert!(answer["calibrated_on"]["kernel"].is_string(), "{answer}");
    assert_eq!(answer["seed"], 1, "{answer}");
    let own = &answer["calibration"]["workload"]["own_s"];
    assert!(own.as_f64() > Some(0.0), "{answer}");
    let cores = answer["checks"].as_array().unwrap().len();
    // Each of the one or two runs, predicted from each.
    assert!(cores == 1 || cores == 4, "{answer}");
    assert!(fs::read_to_string(plot).unwrap().contains("<svg"));
}

#[test]
fn a_report_calibrates_the_model_too() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let text = r#"{"format":1,"cores":[{"counters":{"gets":100000,"requests_own":50000,"requests_sent":50000,
        "requests_received":50000,"busy_ns":40000000,"far_reads":20000,"far_read_bytes":9000000}}]}"#;
    fs::write(&report, text).unwrap();
    let from = report.to_str().unwrap();
    let output = farcore(&[
        "tune",
        "--predict",
        "cores=256,nodes=1,link=25Gb",
        "--from",
        from,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("first to saturate: host link, in"),
        "{output:?}"
    );

    fs::write(&report, "{}").unwrap();
    for (predict, words) in [("cores=4", "format 0"), ("cores=many", "from 1 to 4096")] {
        let output = farcore(&["tune", "--predict", predict, "--from", from]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && complaint.contains(words),
            "{complaint}"
        );
    }
}
