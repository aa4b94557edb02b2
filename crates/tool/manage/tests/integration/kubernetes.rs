//! The DaemonSet's manifest: what it allows is what the systemd unit allows, and its configuration is read.

use std::path::{Path, PathBuf};

use host::Root;
use saphyr::{LoadableYamlNode, Yaml};
use superpage_manage::config::{Config, Gets, Mode, Sources, VARIABLE};

fn packaging(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The value at a path of keys, and of positions in lists.
fn at<'a, 'b>(yaml: &'a Yaml<'b>, path: &str) -> Option<&'a Yaml<'b>> {
    path.split('/').try_fold(yaml, |yaml, key| match key.parse::<usize>() {
        Ok(position) => yaml.as_sequence()?.get(position),
        Err(_) => yaml.as_mapping_get(key),
    })
}

fn text<'a>(yaml: &'a Yaml<'_>, path: &str) -> &'a str {
    at(yaml, path).and_then(Yaml::as_str).unwrap_or_else(|| panic!("{path} is no text"))
}

fn texts<'a>(yaml: &'a Yaml<'_>, path: &str) -> Vec<&'a str> {
    let list = at(yaml, path).and_then(Yaml::as_sequence).unwrap_or_else(|| panic!("{path}"));
    list.iter().map(|one| one.as_str().expect("texts")).collect()
}

#[test]
fn the_daemon_set_has_the_units_capabilities_and_the_nodes_lock() {
    let manifest = packaging("kubernetes/superpage-manage.yaml");
    let documents = Yaml::load_from_str(&manifest).expect("YAML");
    let [namespace, map, set] = &documents[..] else { panic!("{} documents", documents.len()) };
    let kinds = [namespace, map, set].map(|one| (text(one, "apiVersion"), text(one, "kind")));
    assert_eq!(kinds, [("v1", "Namespace"), ("v1", "ConfigMap"), ("apps/v1", "DaemonSet")]);
    for one in [map, set] {
        assert_eq!(text(one, "metadata/namespace"), text(namespace, "metadata/name"));
    }
    let labels = |yaml, path: &str| {
        let labels = at(yaml, path).and_then(Yaml::as_mapping).expect("labels");
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(
        labels(set, "spec/selector/matchLabels"),
        labels(set, "spec/template/metadata/labels")
    );

    let pod = at(set, "spec/template/spec").expect("a pod");
    assert_eq!(at(pod, "hostPID").and_then(Yaml::as_bool), Some(true));
    let container = at(pod, "containers/0").expect("a container");
    assert_eq!(texts(container, "args"), ["manage"]);
    let security = at(container, "securityContext").expect("a security context");
    assert_eq!(at(security, "privileged"), None);
    assert_eq!(at(security, "allowPrivilegeEscalation").and_then(Yaml::as_bool), Some(false));
    assert_eq!(at(security, "readOnlyRootFilesystem").and_then(Yaml::as_bool), Some(true));
    assert_eq!(text(security, "seccompProfile/type"), "RuntimeDefault");
    assert_eq!(texts(security, "capabilities/drop"), ["ALL"]);
    let unit = packaging("superpage-manage.service.in");
    let of_unit = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let of_unit: Vec<&str> =
        of_unit.unwrap().split(' ').map(|name| name.trim_start_matches("CAP_")).collect();
    assert_eq!(texts(security, "capabilities/add"), of_unit);
    assert!(at(container, "resources/limits/memory").is_some());
    assert_eq!(at(container, "resources/limits/cpu"), None);

    // Every mount has its volume, and the lock is the node's.
    let list = |path: &str| at(pod, path).and_then(Yaml::as_sequence).expect("a list");
    let names = |path: &str| list(path).iter().map(|one| text(one, "name")).collect::<Vec<_>>();
    assert_eq!(names("containers/0/volumeMounts"), names("volumes"));
    let lock = PathBuf::from(superpage_manage::operation::LOCK);
    let is_mounted =
        |mount: &&Yaml<'_>| Path::new(text(mount, "mountPath")) == lock.parent().unwrap();
    let mount = list("containers/0/volumeMounts").iter().find(is_mounted).expect("the lock's");
    let volume = list("volumes").iter().find(|one| text(one, "name") == text(mount, "name"));
    assert_eq!(text(volume.unwrap(), "hostPath/path"), text(mount, "mountPath"));
}

#[test]
fn the_configuration_of_the_manifest_is_read_and_observes_what_pods_ask_for() {
    let manifest = packaging("kubernetes/superpage-manage.yaml");
    let documents = Yaml::load_from_str(&manifest).expect("YAML");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("manage.toml");
    std::fs::write(&file, text(&documents[1], "data/manage.toml")).unwrap();
    let config = Config::read(&Root::real(), &Sources::File(file)).unwrap();
    assert_eq!(config.machine.mode, Mode::Observe);
    assert!(matches!(config.rules[..], [ref rule] if matches!(rule.gets, Gets::AsRequested)));
}

/// The annotation that the guide tells to write becomes the variable that is read.
#[test]
fn the_guides_pod_asks_by_its_annotation() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/manage.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let start = guide.split("```yaml\n").nth(1).expect("an example");
    let example = start.split("```").next().unwrap();
    let documents = Yaml::load_from_str(example).expect("YAML");
    let pod = &documents[0];
    let annotations = at(pod, "metadata/annotations").and_then(Yaml::as_mapping).unwrap();
    let (key, value) = annotations.iter().next().expect("an annotation");
    let variable = at(pod, "spec/containers/0/env/0").expect("a variable");
    assert_eq!(text(variable, "name"), VARIABLE);
    let field = format!("metadata.annotations['{}']", key.as_str().unwrap());
    assert_eq!(text(variable, "valueFrom/fieldRef/fieldPath"), field);
    design::designs::find(value.as_str().unwrap()).unwrap();
}
