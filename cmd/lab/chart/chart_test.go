// Package chart tests the Helm chart: it renders the chart with Helm's own code and decodes each object strictly with
// the types of Kubernetes and of the Prometheus Operator.
package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
)

const dir = "../../integrity/ops/chart"

// objects are what the chart renders.
type objects struct {
	deployments []*apps.Deployment
	jobs        []*batch.Job
	crons       []*batch.CronJob
	services    []*core.Service
	ingresses   []*networking.Ingress
	budgets     []*policy.PodDisruptionBudget
	monitors    []*monitoring.ServiceMonitor
	rules       []*monitoring.PrometheusRule
}

var loaded = sync.OnceValues(func() (*chart.Chart, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	return c, c.Validate()
})

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// manifests renders the chart with values in YAML.
func manifests(c *chart.Chart, release, values string) ([]string, error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	merged, err := chartutil.ToRenderValues(
		c, given, chartutil.ReleaseOptions{Name: release, Namespace: "ledger", IsInstall: true},
		chartutil.DefaultCapabilities,
	)
	if err != nil {
		return nil, err
	}
	engine := engine.Engine{Strict: true}
	files, err := engine.Render(c, merged)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			list = append(list, slices.Collect(maps.Values(releaseutil.SplitManifests(files[name])))...)
		}
	}
	return list, nil
}

func render(t *testing.T, release, values string) objects {
	t.Helper()
	list, err := manifests(load(t), release, values)
	if err != nil {
		t.Fatal(err)
	}
	var o objects
	for _, manifest := range list {
		if err := o.decode(manifest); err != nil {
			t.Errorf("%v in\n%s", err, manifest)
		}
	}
	return o
}

// decode adds an object. A field that its type does not have is an error.
func (o *objects) decode(manifest string) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		return strict(manifest, &o.deployments)
	case "batch/v1 Job":
		return strict(manifest, &o.jobs)
	case "batch/v1 CronJob":
		return strict(manifest, &o.crons)
	case "v1 Service":
		return strict(manifest, &o.services)
	case "networking.k8s.io/v1 Ingress":
		return strict(manifest, &o.ingresses)
	case "policy/v1 PodDisruptionBudget":
		return strict(manifest, &o.budgets)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return strict(manifest, &o.monitors)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return strict(manifest, &o.rules)
	}
	return fmt.Errorf("unexpected kind %+v", kind)
}

func strict[T any](manifest string, list *[]*T) error {
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		return err
	}
	*list = append(*list, object)
	return nil
}

// needed are the values that have no default. A service needs a place for kept files besides.
const (
	needed = `
baseURL: https://ledger.example
image: {repository: registry.example/integrity}
`
	bucket = `
settings: {BLOB_URL: "s3://bucket?region=eu-west-1"}
`
)

// valueSets are added to needed, and to bucket unless they name a volume. Each is one way to use the chart.
var valueSets = map[string]string{
	"defaults": "",
	"one replica with a volume": `
replicas: 1
dataClaim: ledger-data
`,
	"everything": `
image: {digest: "sha256:` + digest + `", pullPolicy: Always, pullSecrets: [one, two]}
replicas: 5
issuer: 'ledger "of" the: test'
settings: {TRUSTED_PROXIES: "10.0.0.0/8", PUBLIC_PER_MINUTE: "1000000", DRAIN_DELAY: 15s, LOG_FORMAT: text, SIGNUP: "off",
  WORM: "s3://exports?object-lock=compliance&days=3650"}
environment: {AWS_SHARED_CREDENTIALS_FILE: /etc/integrity/aws, GOMEMLIMIT: 1GiB}
secret:
  name: other
  files: {SMTP_URL: smtp-url, OAUTH_CLIENT_SECRET: oauth, REPLICA_URL: replica}
  trustedKeys: keys.json
tlsSecret: ledger-tls
dataClaim: shared
migrate: {secretName: ledger-owner, databaseURL: owner-url}
service: {type: LoadBalancer, port: 443}
ingress: {enabled: true, className: nginx, tlsSecret: public-tls, annotations: {cert-manager.io/issuer: letters}}
monitoring: {enabled: true, labels: {release: prometheus}}
serviceAccount: ledger
podLabels: {team: ledger}
podAnnotations: {sidecar.istio.io/inject: "false"}
nodeSelector: {disk: ssd}
tolerations: [{key: dedicated, operator: Equal, value: ledger, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
  {key: zone, operator: In, values: [a]}]}]}}}
resources: {limits: {cpu: "4", memory: 4Gi}}
`,
	"no migration":        "migrate: {enabled: false}",
	"plain ingress":       "{baseURL: 'https://a.example:8443', ingress: {enabled: true, annotations: null}}",
	"ingress without any": "ingress: {enabled: true, annotations: {nginx.ingress.kubernetes.io/proxy-body-size: null}}",
	"monitored":           "monitoring: {enabled: true}",
	"tag":                 "{image: {tag: 2.0.0-rc.1}, service: {type: NodePort}}",
	"no resources":        "resources: null",
	"own resources":       "resources: {limits: {cpu: null}}",
}

var digest = strings.Repeat("0a", 32)

// values merges sets of values, as helm does with several files.
func values(t *testing.T, sets ...string) string {
	t.Helper()
	all := map[string]any{}
	for _, set := range sets {
		var more map[string]any
		if err := yaml.Unmarshal([]byte(set), &more); err != nil {
			t.Fatal(err)
		}
		all = chartutil.MergeTables(more, all)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every set of values, under several names, renders objects that fit together and that the program understands.
func TestChartRenders(t *testing.T) {
	for name, set := range valueSets {
		for _, release := range []string{"a", "integrity", strings.Repeat("long-", 10) + "abc"} {
			t.Run(name+"/"+release, func(t *testing.T) {
				place := bucket
				if strings.Contains(set, "dataClaim") {
					place = ""
				}
				o := render(t, release, values(t, needed, place, set))
				if len(o.deployments) != 1 || len(o.services) != 2 || len(o.budgets) != 1 {
					t.Fatalf("%d deployments, %d services, %d budgets", len(o.deployments), len(o.services), len(o.budgets))
				}
				if want := strings.Contains(set, "ingress:"); (len(o.ingresses) == 1) != want {
					t.Errorf("%d ingresses", len(o.ingresses))
				}
				if want := strings.Contains(set, "monitoring:"); (len(o.monitors) == 1) != want || (len(o.rules) == 1) != want {
					t.Errorf("%d monitors, %d rules", len(o.monitors), len(o.rules))
				}
				if want := !strings.Contains(set, "enabled: false"); (len(o.jobs) == 1) != want {
					t.Errorf("%d jobs", len(o.jobs))
				}
				if want := strings.Contains(set, "WORM"); (len(o.crons) == 1) != want {
					t.Errorf("%d cron jobs", len(o.crons))
				}
				for _, fault := range o.faults() {
					t.Error(fault)
				}
			})
		}
	}
}

// faults returns what would not work in a cluster, or with the program.
func (o objects) faults() (faults []string) {
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	deployment := o.deployments[0]
	pod := deployment.Spec.Template
	matches := func(what string, selector *meta.LabelSelector, set map[string]string, want bool) {
		s, err := meta.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || s.Matches(labels.Set(set)) != want {
			say("%s: the selector %s matches %v: not %t, %v", what, s, set, want, err)
		}
	}
	matches("deployment", deployment.Spec.Selector, pod.Labels, true)
	matches("budget", o.budgets[0].Spec.Selector, pod.Labels, true)
	for _, c := range pod.Spec.TopologySpreadConstraints {
		matches("spread", c.LabelSelector, pod.Labels, true)
	}
	for _, job := range o.jobs {
		for _, service := range o.services {
			matches("job", &meta.LabelSelector{MatchLabels: service.Spec.Selector}, job.Spec.Template.Labels, false)
		}
		faults = append(faults, podFaults(job.Spec.Template.Spec, "migrate")...)
		for _, v := range job.Spec.Template.Spec.Volumes {
			if v.Name == "secrets" && (len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != v.Secret.Items[0].Key) {
				say("the job sees more than the URL of the schema's owner: %+v", v.Secret.Items)
			}
		}
	}
	for _, cron := range o.crons {
		exporting := cron.Spec.JobTemplate.Spec.Template
		for _, service := range o.services {
			matches("cron job", &meta.LabelSelector{MatchLabels: service.Spec.Selector}, exporting.Labels, false)
		}
		faults = append(faults, podFaults(exporting.Spec, "export")...)
		if len(cron.Name) > 52 { // Kubernetes appends 11 characters
			say("the name %s is too long for a CronJob", cron.Name)
		}
	}
	faults = append(faults, podFaults(pod.Spec, "serve")...)
	container := pod.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, service := range o.services {
		matches("service", &meta.LabelSelector{MatchLabels: service.Spec.Selector}, pod.Labels, true)
		for _, p := range service.Spec.Ports {
			if ports[p.TargetPort.String()] == 0 {
				say("service %s: no port %s", service.Name, p.TargetPort.String())
			}
		}
	}
	encrypted := variable(container, "TLS_CERT") != ""
	for _, probe := range []*core.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		path := map[bool]string{true: "/readyz", false: "/healthz"}[probe == container.ReadinessProbe]
		if get := probe.HTTPGet; get.Path != path || ports[get.Port.String()] != 8080 ||
			(get.Scheme == core.URISchemeHTTPS) != encrypted {
			say("probe %+v", get)
		}
	}
	if variable(container, "LISTEN") != ":8080" || variable(container, "METRICS_LISTEN") != ":18080" ||
		ports["metrics"] != 18080 {
		say("the program does not listen on the ports %v", ports)
	}
	// cmd/integrity/serve.go: 30 s from the signal, and 3 s for traces.
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace < 35 {
		say("pods are killed while they still work")
	}
	for _, i := range o.ingresses {
		backend := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		if backend.Name != o.services[0].Name && backend.Name != o.services[1].Name {
			say("the ingress leads to %s", backend.Name)
		}
		host, _, _ := strings.Cut(strings.TrimPrefix(variable(container, "BASE_URL"), "https://"), ":")
		if i.Spec.Rules[0].Host != host || len(i.Spec.TLS) > 0 && i.Spec.TLS[0].Hosts[0] != host {
			say("the ingress is for %s, not %s", i.Spec.Rules[0].Host, host)
		}
	}
	for _, m := range o.monitors {
		found := 0
		for _, service := range o.services {
			if s, _ := meta.LabelSelectorAsSelector(&m.Spec.Selector); s.Matches(labels.Set(service.Labels)) {
				found++
				if service.Spec.Ports[0].Name != m.Spec.Endpoints[0].Port || service.Labels[m.Spec.JobLabel] != "integrity" {
					say("the monitor scrapes %s as %s", m.Spec.Endpoints[0].Port, service.Labels[m.Spec.JobLabel])
				}
			}
		}
		if found != 1 {
			say("the monitor finds %d services", found)
		}
	}
	return append(faults, o.nameFaults()...)
}

// nameFaults checks the names and labels, which Kubernetes limits.
func (o objects) nameFaults() (faults []string) {
	seen := map[string]bool{}
	named := func(kind string, m meta.ObjectMeta) {
		for _, fault := range validation.IsDNS1035Label(m.Name) {
			faults = append(faults, kind+" "+m.Name+": "+fault)
		}
		if seen[kind+m.Name] {
			faults = append(faults, "two of "+kind+" "+m.Name)
		}
		seen[kind+m.Name] = true
		for key, value := range m.Labels {
			for _, fault := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
				faults = append(faults, kind+" "+m.Name+": label "+key+": "+value+": "+fault)
			}
		}
	}
	named("Deployment", o.deployments[0].ObjectMeta)
	for _, j := range o.jobs {
		named("Job", j.ObjectMeta)
	}
	for _, c := range o.crons {
		named("CronJob", c.ObjectMeta)
	}
	for _, s := range o.services {
		named("Service", s.ObjectMeta)
	}
	for _, i := range o.ingresses {
		named("Ingress", i.ObjectMeta)
	}
	return faults
}

// podFaults checks a pod that runs a command of the program.
func podFaults(pod core.PodSpec, command string) (faults []string) {
	say := func(format string, args ...any) {
		faults = append(faults, command+": "+fmt.Sprintf(format, args...))
	}
	s, c := pod.SecurityContext, pod.Containers[0]
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *s.FSGroup != 65532 ||
		s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		say("pod security %+v", s)
	}
	if s := c.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		say("container security %+v", s)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken ||
		pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		say("the pod gets a token or variables that the program does not know")
	}
	if !slices.Equal(c.Args, []string{command}) || c.Command != nil || c.Image == "" || strings.HasSuffix(c.Image, ":") {
		say("%v %v of %s", c.Command, c.Args, c.Image)
	}
	mounts, secret := map[string]string{}, map[string]bool{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			secret[v.Name] = true
			if v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440 {
				say("the secret %s is not mounted with mode 0440", v.Secret.SecretName)
			}
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			say("no volume %s", m.Name)
		}
		mounts[m.MountPath] = m.Name
		if m.ReadOnly != secret[m.Name] || m.SubPath != "" { // a file of a subPath never changes
			say("mount %+v", m)
		}
	}
	if len(mounts) != len(pod.Volumes) || mounts["/tmp"] == "" {
		say("%d volumes, mounts %v", len(pod.Volumes), mounts)
	}
	return append(faults, environmentFaults(c, mounts, secret)...)
}

// environmentFaults checks that the program knows each variable, and that each file is on a mount of the right kind.
func environmentFaults(c core.Container, mounts map[string]string, secret map[string]bool) (faults []string) {
	settings := map[string]config.Setting{}
	for _, s := range config.Settings() {
		settings[s.Variable()] = s
	}
	seen := map[string]bool{}
	for _, e := range c.Env {
		if seen[e.Name] {
			faults = append(faults, e.Name+" is set twice")
		}
		seen[e.Name] = true
		name, file := strings.CutSuffix(e.Name, "_FILE")
		switch s, known := settings[name]; {
		case strings.HasPrefix(e.Name, config.Prefix) && (!known || s.Witness || s.Secret != file):
			faults = append(faults, e.Name+" is no variable of integrity serve, or a secret in the manifest")
		case e.Value == "":
			faults = append(faults, e.Name+" is empty")
		case file && (!secret[mounts[filepath.Dir(e.Value)]]):
			faults = append(faults, e.Name+": "+e.Value+" is in no mounted secret")
		case e.Name == "INTEGRITY_DATA_DIR" && mounts[e.Value] == "":
			faults = append(faults, "the data directory cannot be written")
		case slices.Contains([]string{"INTEGRITY_TRUSTED_KEYS", "INTEGRITY_TLS_CERT", "INTEGRITY_TLS_KEY"}, e.Name) &&
			!secret[mounts[filepath.Dir(e.Value)]]:
			faults = append(faults, e.Name+": "+e.Value+" is in no mounted secret")
		}
	}
	required := []string{"BASE_URL", "ISSUER", "DATABASE_URL_FILE"}
	if c.Args[0] == "serve" {
		required = append(required, "TRUSTED_KEYS", "SIGNING_KEY_FILE")
	}
	for _, name := range required {
		if !seen[config.Prefix+name] {
			faults = append(faults, name+" is missing")
		}
	}
	return faults
}

func variable(c core.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == config.Prefix+name {
			return e.Value
		}
	}
	return ""
}

// Values that reach no object, or that make a service that loses something, are refused.
func TestChartRefusesValues(t *testing.T) {
	for set, want := range map[string]string{
		"baseURL: http://ledger.example":                       "baseURL",
		"baseURL: https://ledger.example/":                     "baseURL",
		"baseURL: ''":                                          "baseURL",
		"image: {repository: ''}":                              "repository",
		"replicas: 0":                                          "replicas",
		"replica: 2":                                           "replica",
		"settings: {PUBLIC_PER_MINUTES: '1'}":                  "PUBLIC_PER_MINUTES",
		"settings: {PUBLIC_PER_MINUTE: 1000000}":               "PUBLIC_PER_MINUTE",
		"settings: {DATABASE_URL: postgres://u:p@h/d}":         "DATABASE_URL",
		"settings: {LISTEN: ':1'}":                             "LISTEN",
		"settings: {WITNESS_LISTEN: x}":                        "WITNESS_LISTEN",
		"environment: {INTEGRITY_BASE_URL: https://x.example}": "INTEGRITY_BASE_URL",
		"secret: {files: {BASE_URL: x}}":                       "BASE_URL",
		"secret: {files: {SMTP_URL: ../x}}":                    "SMTP_URL",
		"secret: {files: {DATABASE_URL: null}}":                "DATABASE_URL",
		"":                                                     "set settings.BLOB_URL",
	} {
		place := bucket
		if set == "" {
			place = ""
		}
		_, err := manifests(load(t), "a", values(t, needed, place, set))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// The chart runs the release that it belongs to.
func TestChartIsOfThisRelease(t *testing.T) {
	if m := load(t).Metadata; m.AppVersion != domain.ThisRelease.String() || m.Version != m.AppVersion {
		t.Errorf("chart %s of %s, want both %s: Chart.yaml follows domain.ThisRelease", m.Version, m.AppVersion,
			domain.ThisRelease)
	}
}

// The schema of the values takes exactly the settings of the program that the chart does not make itself.
func TestSchemaKnowsTheSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type names struct{ PropertyNames struct{ Enum []string } }
	var schema struct {
		Properties struct {
			Settings names
			Secret   struct{ Properties struct{ Files names } }
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	own := []string{
		"LISTEN", "METRICS_LISTEN", "BASE_URL", "ISSUER", "DATA_DIR", "TRUSTED_KEYS", "TLS_CERT", "TLS_KEY",
	}
	var plain, secret []string
	for _, s := range config.Settings() {
		switch {
		case s.Secret && !s.Witness:
			secret = append(secret, s.Name)
		case !s.Witness && !slices.Contains(own, s.Name):
			plain = append(plain, s.Name)
		}
	}
	for want, got := range map[*[]string][]string{
		&plain:  schema.Properties.Settings.PropertyNames.Enum,
		&secret: schema.Properties.Secret.Properties.Files.PropertyNames.Enum,
	} {
		if slices.Sort(*want); !slices.Equal(*want, got) {
			t.Errorf("values.schema.json has %v, the program %v", got, *want)
		}
	}
}

// The rules are those of alerts.yml, with the public address in their links.
func TestRulesAreTheAlerts(t *testing.T) {
	text, err := os.ReadFile("../../integrity/ops/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	linked := strings.ReplaceAll(string(text), "{{ $externalLabels.integrity_url }}", "https://ledger.example")
	if err := yaml.UnmarshalStrict([]byte(linked), &want); err != nil {
		t.Fatal(err)
	}
	o := render(t, "a", values(t, needed, bucket, valueSets["monitored"]))
	if len(want.Groups) == 0 || !reflect.DeepEqual(o.rules[0].Spec, want) {
		t.Errorf("the chart's rules are not alerts.yml: %+v", o.rules[0].Spec)
	}
}
