package test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	release   = "skandha"
	namespace = "agents"
	chartDir  = "../skandha"
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var templated = map[string]map[string]string{} // by values; the tests are not parallel

// template renders the chart as `helm template` does, with values as YAML.
func template(t *testing.T, values string) (files map[string]string, err error) {
	t.Helper()
	if files := templated[values]; files != nil {
		return files, nil
	}
	defer func() { templated[values] = files }()
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	c := load(t)
	options := common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := util.ToRenderValues(c, given, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// cluster is what the chart creates.
type cluster struct {
	workloads   []*workload
	services    map[string]*corev1.Service
	configs     map[string]*corev1.ConfigMap
	claims      map[string]*corev1.PersistentVolumeClaim
	accounts    map[string]*corev1.ServiceAccount
	budgets     []*policyv1.PodDisruptionBudget
	policies    []*networkingv1.NetworkPolicy
	ingresses   []*networkingv1.Ingress
	autoscalers []*autoscalingv2.HorizontalPodAutoscaler
	scaled      []*scaledObject
	monitors    []*podMonitor
}

// workload is a Deployment or a StatefulSet.
type workload struct {
	name       string
	selector   *metav1.LabelSelector
	pod        *corev1.PodTemplateSpec
	deployment *appsv1.Deployment // or nil
	set        *appsv1.StatefulSet
}

func (w *workload) component() string { return w.pod.Labels["app.kubernetes.io/component"] }

// scaledObject is the part of KEDA's type that the chart uses, and podMonitor that of the Prometheus
// operator's; their modules would bring their controllers.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		CooldownPeriod  int `json:"cooldownPeriod"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string                         `json:"type"`
			MetricType autoscalingv2.MetricTargetType `json:"metricType"`
			Metadata   map[string]string              `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// render renders the chart and decodes each document strictly: an unknown or repeated field is an error.
func render(t *testing.T, values string) *cluster {
	t.Helper()
	files, err := template(t, values)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		services: map[string]*corev1.Service{}, configs: map[string]*corev1.ConfigMap{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, accounts: map[string]*corev1.ServiceAccount{},
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq("\n"+files[name], "\n---") {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			var meta struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if meta.Kind == "" { // comments alone
				continue
			}
			id := meta.Kind + "/" + meta.Name
			if seen[id] {
				t.Errorf("%s: %s is there twice", name, id)
			}
			seen[id] = true
			if err := c.add(meta.APIVersion+" "+meta.Kind, doc); err != nil {
				t.Errorf("%s: %s: %v\n%s", name, id, err, doc)
			}
		}
	}
	return c
}

func decode[T any](doc string) (*T, error) {
	out := new(T)
	return out, yaml.UnmarshalStrict([]byte(doc), out)
}

func (c *cluster) add(kind, doc string) (err error) {
	switch kind {
	case "apps/v1 Deployment":
		var d *appsv1.Deployment
		if d, err = decode[appsv1.Deployment](doc); err == nil {
			w := &workload{name: d.Name, selector: d.Spec.Selector, pod: &d.Spec.Template, deployment: d}
			c.workloads = append(c.workloads, w)
		}
	case "apps/v1 StatefulSet":
		var s *appsv1.StatefulSet
		if s, err = decode[appsv1.StatefulSet](doc); err == nil {
			w := &workload{name: s.Name, selector: s.Spec.Selector, pod: &s.Spec.Template, set: s}
			c.workloads = append(c.workloads, w)
		}
	case "v1 Service":
		err = keep(doc, c.services, func(o *corev1.Service) string { return o.Name })
	case "v1 ConfigMap":
		err = keep(doc, c.configs, func(o *corev1.ConfigMap) string { return o.Name })
	case "v1 PersistentVolumeClaim":
		err = keep(doc, c.claims, func(o *corev1.PersistentVolumeClaim) string { return o.Name })
	case "v1 ServiceAccount":
		err = keep(doc, c.accounts, func(o *corev1.ServiceAccount) string { return o.Name })
	case "policy/v1 PodDisruptionBudget":
		c.budgets, err = list(doc, c.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		c.policies, err = list(doc, c.policies)
	case "networking.k8s.io/v1 Ingress":
		c.ingresses, err = list(doc, c.ingresses)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		c.autoscalers, err = list(doc, c.autoscalers)
	case "keda.sh/v1alpha1 ScaledObject":
		c.scaled, err = list(doc, c.scaled)
	case "monitoring.coreos.com/v1 PodMonitor":
		c.monitors, err = list(doc, c.monitors)
	default:
		err = fmt.Errorf("no type for %s", kind)
	}
	return err
}

func keep[T any](doc string, all map[string]*T, name func(*T) string) error {
	o, err := decode[T](doc)
	all[name(o)] = o
	return err
}

func list[T any](doc string, all []*T) ([]*T, error) {
	o, err := decode[T](doc)
	return append(all, o), err
}

// workload returns the one with the component's name.
func (c *cluster) workload(component string) *workload {
	for _, w := range c.workloads {
		if w.component() == component {
			return w
		}
	}
	panic("no workload " + component)
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// variations are sets of values that differ in what they create.
var variations = map[string]string{
	"defaults": ``,
	"external": `
nats: {enabled: false, external: {url: "tls://bus.example.org:4222", caSecret: bus-ca, streamReplicas: 3}}
redis: {enabled: false, external: {url: "redis://:$(SKANDHA_REDIS_PASSWORD)@redis.example.org:6379/0"}}`,
	"minimal": `
nats: {replicas: 1, spread: ScheduleAnyway}
core: {replicas: 1}
provider: {replicas: 1}
redis: {enabled: false, external: {url: "redis://redis:6379/0"}}
listener: {enabled: false}
uibridge: {enabled: false}
networkPolicy: {enabled: false}`,
	"keda": `
provider: {autoscaling: {kind: keda, prometheus: "http://prometheus.monitoring:9090"}}
toolrunner: {storage: {accessMode: ReadWriteMany, storageClass: nfs}, autoscaling: {kind: keda, max: 20, busy: 8}}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: keda}}}]}
podMonitor: {enabled: true, labels: {release: prometheus}}`,
	"hpa": `
provider: {autoscaling: {kind: cpu, min: 1, max: 4}}`,
	"ingress": `
uibridge:
  ingress: {enabled: true, className: nginx, host: agent.example.org, tlsSecret: agent-tls, annotations: {a/b: c}}
  hosts: [agent.internal]
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]
listener:
  http:
    enabled: true
    from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]
    ingress: {enabled: true, host: hooks.example.org, tlsSecret: hooks-tls}`,
	"everything": `
image: {repository: registry.example.org/skandha, tag: v1.2.3, pullSecrets: [registry]}
nats:
  {replicas: 5, tlsSecret: bus-tls, image: {digest: "` + digest + `"}, storageClass: local, nodeSelector: {disk: nvme}}
redis: {tolerations: [{key: a, operator: Exists}], storageClass: fast}
env: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]
core:
  digest: "` + digest + `"
  config: {agents: {main: {}, other: {model: m}}, limits: {backlog: 5}}
  env: [{name: AWS_REGION, value: x}]
  volumes: [{name: guides, configMap: {name: guides}}]
  volumeMounts: [{name: guides, mountPath: /etc/guides}]
  egress: [{ports: [{protocol: TCP, port: 443}]}]
  podAnnotations: {a: b}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: k, operator: Exists}]}]
provider: {envFrom: [{secretRef: {name: model-keys}}]}
toolrunner: {replicas: 3, storage: {accessMode: ReadWriteMany, existingClaim: shared}}
uibridge: {replicas: 2, url: "https://a.example.org", storage: {accessMode: ReadWriteMany}}`,
}

func eachVariation(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(variations)) {
		t.Run(name, func(t *testing.T) { f(t, render(t, variations[name])) })
	}
}
