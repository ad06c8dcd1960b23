package test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// check lists what is wrong with a cluster. Each is shown to fail by a mutation.
type check func(c *cluster) []string

// checks are all of them, by name.
var checks = map[string]check{
	"restricted": restricted, "resources": resources, "probes": probes, "budgets": budgets, "services": services,
	"references": references, "mounts": mounts, "environment": environment, "rollouts": rollouts, "draining": draining,
	"policies": policies, "scaling": scaling,
}

func TestPolicies(t *testing.T) {
	eachVariation(t, func(t *testing.T, c *cluster) {
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			for _, wrong := range checks[name](c) {
				t.Errorf("%s: %s", name, wrong)
			}
		}
	})
}

func matches(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}

// sayer notes what is wrong.
type sayer = func(format string, args ...any)

// eachContainer calls f for the containers of all pods, init containers included.
func (c *cluster) eachContainer(f func(w *workload, k *corev1.Container, say sayer)) (out []string) {
	for _, w := range c.workloads {
		for _, group := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
			for i := range group {
				f(w, &group[i], func(format string, args ...any) {
					out = append(out, w.name+"/"+group[i].Name+": "+fmt.Sprintf(format, args...))
				})
			}
		}
	}
	return out
}

func is[T comparable](p *T, want T) bool { return p != nil && *p == want }

// restricted is the profile of that name of the Pod Security Standards, a read-only root file system, and no
// access to the API server.
func restricted(c *cluster) (out []string) {
	for _, w := range c.workloads {
		s := &w.pod.Spec
		p := s.SecurityContext
		if p == nil || !is(p.RunAsNonRoot, true) || p.RunAsUser == nil || *p.RunAsUser == 0 || p.SeccompProfile == nil ||
			p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			out = append(out, w.name+": the pod is not restricted")
		}
		if s.HostNetwork || s.HostPID || s.HostIPC || !is(s.AutomountServiceAccountToken, false) ||
			!is(s.EnableServiceLinks, false) {
			out = append(out, w.name+": the pod has the host's namespaces, a token, or the addresses of services")
		}
		if c.accounts[s.ServiceAccountName] == nil {
			out = append(out, w.name+": no service account "+s.ServiceAccountName)
		}
		for _, v := range s.Volumes {
			if v.HostPath != nil {
				out = append(out, w.name+": a path of the host")
			}
		}
	}
	return append(out, c.eachContainer(func(_ *workload, k *corev1.Container, say sayer) {
		s := k.SecurityContext
		if s == nil || !is(s.AllowPrivilegeEscalation, false) || !is(s.ReadOnlyRootFilesystem, true) || s.Privileged != nil ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			len(s.Capabilities.Add) > 0 || s.RunAsUser != nil || s.SeccompProfile != nil {
			say("the container is not restricted")
		}
		for _, p := range k.Ports {
			if p.HostPort != 0 {
				say("a port of the host")
			}
		}
		tag := k.Image[strings.LastIndexByte(k.Image, '/')+1:]
		if !strings.ContainsAny(tag, ":@") || strings.HasSuffix(tag, ":latest") {
			say("the image %s has no version", k.Image)
		}
	})...)
}

func resources(c *cluster) []string {
	return c.eachContainer(func(_ *workload, k *corev1.Container, say sayer) {
		memory, limit := k.Resources.Requests.Memory(), k.Resources.Limits.Memory()
		if k.Resources.Requests.Cpu().IsZero() || memory.IsZero() || limit.IsZero() || memory.Cmp(*limit) > 0 {
			say("it requests %v and has the limits %v", k.Resources.Requests, k.Resources.Limits)
		}
		for _, e := range k.Env {
			if e.Name != "GOMEMLIMIT" {
				continue
			}
			mib, err := strconv.ParseInt(strings.TrimSuffix(e.Value, "MiB"), 10, 64)
			if soft := mib << 20; err != nil || soft >= limit.Value() || soft < limit.Value()/2 {
				say("GOMEMLIMIT is %s, the limit %s", e.Value, limit)
			}
		}
	})
}

func probes(c *cluster) []string {
	return c.eachContainer(func(_ *workload, k *corev1.Container, say sayer) {
		for name, p := range map[string]*corev1.Probe{
			"startup": k.StartupProbe, "readiness": k.ReadinessProbe, "liveness": k.LivenessProbe,
		} {
			switch {
			case p == nil:
				say("no %s probe", name)
			case p.HTTPGet != nil && !hasPort(k.Ports, p.HTTPGet.Port):
				say("the %s probe asks the port %v, which is not there", name, p.HTTPGet.Port)
			case p.HTTPGet == nil && (p.Exec == nil || len(p.Exec.Command) == 0):
				say("the %s probe asks nothing", name)
			}
		}
	})
}

func hasPort(ports []corev1.ContainerPort, p intstr.IntOrString) bool {
	return slices.ContainsFunc(ports, func(k corev1.ContainerPort) bool {
		return p.Type == intstr.String && k.Name == p.StrVal || p.Type == intstr.Int && k.ContainerPort == p.IntVal
	})
}

// budgets: one per workload, which lets one pod go, so that no node is kept.
func budgets(c *cluster) (out []string) {
	for _, b := range c.budgets {
		var of []string
		for _, w := range c.workloads {
			if matches(b.Spec.Selector, w.pod.Labels) {
				of = append(of, w.name)
			}
		}
		if most := b.Spec.MaxUnavailable; len(of) != 1 || b.Spec.MinAvailable != nil || most == nil || most.IntValue() != 1 {
			out = append(out, fmt.Sprintf("%s is of %q, with %v", b.Name, of, b.Spec.MaxUnavailable))
		}
	}
	for _, w := range c.workloads {
		n := 0
		for _, b := range c.budgets {
			if matches(b.Spec.Selector, w.pod.Labels) {
				n++
			}
		}
		if n != 1 {
			out = append(out, fmt.Sprintf("%s has %d budgets", w.name, n))
		}
	}
	return out
}

// services lead to one workload each, to ports that it has; names that lead somewhere exist.
func services(c *cluster) (out []string) {
	for _, s := range c.services {
		var of []*workload
		for _, w := range c.workloads {
			if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.pod.Labels)) {
				of = append(of, w)
			}
		}
		if len(s.Spec.Selector) == 0 || len(of) != 1 {
			out = append(out, fmt.Sprintf("%s selects %d workloads", s.Name, len(of)))
			continue
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(of[0].pod.Spec.Containers, func(k corev1.Container) bool {
				return hasPort(k.Ports, p.TargetPort)
			}) {
				out = append(out, fmt.Sprintf("%s: %s has no port %v", s.Name, of[0].name, p.TargetPort))
			}
		}
	}
	for _, w := range c.workloads {
		if w.set != nil {
			if s := c.services[w.set.Spec.ServiceName]; s == nil || s.Spec.ClusterIP != "None" {
				out = append(out, w.name+": no headless service "+w.set.Spec.ServiceName)
			}
		}
		if !matches(w.selector, w.pod.Labels) {
			out = append(out, w.name+" does not select its pods")
		}
		for _, other := range c.workloads {
			if other != w && matches(w.selector, other.pod.Labels) {
				out = append(out, w.name+" selects the pods of "+other.name)
			}
		}
	}
	for _, i := range c.ingresses {
		for _, r := range i.Spec.Rules {
			for _, p := range r.HTTP.Paths {
				s := c.services[p.Backend.Service.Name]
				if s == nil || !slices.ContainsFunc(s.Spec.Ports, func(q corev1.ServicePort) bool {
					return q.Name == p.Backend.Service.Port.Name
				}) {
					out = append(out, i.Name+": no service "+p.Backend.Service.Name)
				}
			}
			if !slices.ContainsFunc(i.Spec.TLS, func(tls networkingv1.IngressTLS) bool {
				return slices.Contains(tls.Hosts, r.Host) && tls.SecretName != ""
			}) {
				out = append(out, i.Name+": "+r.Host+" is without TLS")
			}
		}
	}
	return out
}

// inputs are the Secrets that the documentation says to make, with their keys. An empty list: those of a
// certificate. Values may name further objects, which are the caller's.
var inputs = map[string][]string{
	"skandha-bus": {
		"server.conf", "keys.json", "core.key", "provider.key", "toolrunner.key", "listener.key", "uibridge.key",
	},
	"skandha-passwords": {"nats-routes", "redis", "ui-token"},
	"bus-tls":           {"tls.crt", "tls.key", "ca.crt"},
	"bus-ca":            {"ca.crt"},
}

func references(c *cluster) (out []string) {
	secret := func(where, name string, keys ...string) {
		known, is := inputs[name]
		if !is {
			out = append(out, where+": no secret "+name)
		}
		for _, k := range keys {
			if is && !slices.Contains(known, k) {
				out = append(out, fmt.Sprintf("%s: the secret %s has no key %s", where, name, k))
			}
		}
	}
	config := func(where, name string, keys ...string) {
		m := c.configs[name]
		if m == nil && name != "guides" { // the caller's, of the variation "everything"
			out = append(out, where+": no config map "+name)
		}
		for _, k := range keys {
			if m != nil && m.Data[k] == "" {
				out = append(out, fmt.Sprintf("%s: the config map %s has no key %s", where, name, k))
			}
		}
	}
	keys := func(items []corev1.KeyToPath) (all []string) {
		for _, i := range items {
			all = append(all, i.Key)
		}
		return all
	}
	for _, w := range c.workloads {
		for _, v := range w.pod.Spec.Volumes {
			switch {
			case v.Secret != nil:
				secret(w.name, v.Secret.SecretName, keys(v.Secret.Items)...)
			case v.ConfigMap != nil:
				config(w.name, v.ConfigMap.Name, keys(v.ConfigMap.Items)...)
			case v.Projected != nil:
				for _, s := range v.Projected.Sources {
					if s.Secret != nil {
						secret(w.name, s.Secret.Name, keys(s.Secret.Items)...)
					}
					if s.ConfigMap != nil {
						config(w.name, s.ConfigMap.Name, keys(s.ConfigMap.Items)...)
					}
				}
			case v.PersistentVolumeClaim != nil:
				if name := v.PersistentVolumeClaim.ClaimName; c.claims[name] == nil && name != "shared" { // likewise
					out = append(out, w.name+": no claim "+name)
				}
			}
		}
	}
	return append(out, c.eachContainer(func(w *workload, k *corev1.Container, _ sayer) {
		for _, e := range k.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				secret(w.name, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
			}
		}
	})...)
}

// mounts: each has its volume and each volume a mount, at its own path; a secret or a configuration is read-only.
func mounts(c *cluster) (out []string) {
	used := map[string]bool{}
	out = c.eachContainer(func(w *workload, k *corev1.Container, say sayer) {
		paths := map[string]bool{}
		for _, m := range k.VolumeMounts {
			used[w.name+" "+m.Name] = true
			if paths[m.MountPath] {
				say("two mounts at %s", m.MountPath)
			}
			paths[m.MountPath] = true
			at := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			switch {
			case at < 0 && (w.set == nil || !slices.ContainsFunc(w.set.Spec.VolumeClaimTemplates,
				func(v corev1.PersistentVolumeClaim) bool { return v.Name == m.Name })):
				say("no volume %s", m.Name)
			case at >= 0 && !m.ReadOnly && m.Name != "guides" && w.pod.Spec.Volumes[at].EmptyDir == nil &&
				w.pod.Spec.Volumes[at].PersistentVolumeClaim == nil:
				say("%s may be written", m.Name)
			}
		}
	})
	for _, w := range c.workloads {
		for _, v := range w.pod.Spec.Volumes {
			if !used[w.name+" "+v.Name] {
				out = append(out, fmt.Sprintf("%s: no container mounts %s", w.name, v.Name))
			}
			if v.EmptyDir != nil && v.EmptyDir.SizeLimit == nil {
				out = append(out, fmt.Sprintf("%s: %s has no limit", w.name, v.Name))
			}
		}
	}
	return out
}

// rollouts: a new pod is ready before an old one goes, unless both need a volume that one node alone can mount.
func rollouts(c *cluster) (out []string) {
	for _, w := range c.workloads {
		if w.deployment == nil {
			continue
		}
		alone := false
		for _, v := range w.pod.Spec.Volumes {
			if p := v.PersistentVolumeClaim; p != nil {
				claim := c.claims[p.ClaimName]
				alone = alone || claim != nil && !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany)
			}
		}
		s := w.deployment.Spec.Strategy
		if alone && (s.Type != "Recreate" || !is(w.deployment.Spec.Replicas, 1)) {
			out = append(out, w.name+": two pods cannot mount its volume on two nodes")
		}
		if !alone && (s.RollingUpdate == nil || s.RollingUpdate.MaxUnavailable.IntValue() != 0 ||
			s.RollingUpdate.MaxSurge.IntValue() != 1) && w.component() != "listener" {
			out = append(out, w.name+": a rollout leaves fewer pods")
		}
		if w.pod.Annotations["checksum/config"] == "" {
			out = append(out, w.name+": a changed configuration does not arrive")
		}
	}
	return out
}

// draining: a pod may take as long as the drain of its service, and the pause before it.
func draining(c *cluster) []string {
	return c.eachContainer(func(w *workload, k *corev1.Container, say sayer) {
		grace, needs := w.pod.Spec.TerminationGracePeriodSeconds, 0*time.Second
		for _, e := range k.Env {
			if e.Name == "SKANDHA_DRAIN" {
				d, err := time.ParseDuration(e.Value)
				if err != nil {
					say("%v", err)
				}
				needs += d
			}
		}
		if k.Lifecycle != nil && k.Lifecycle.PreStop != nil && k.Lifecycle.PreStop.Sleep != nil {
			needs += time.Duration(k.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
		if w.component() == "nats" {
			needs = 35 * time.Second // lame_duck_duration and lame_duck_grace_period
			if k.Lifecycle == nil || k.Lifecycle.PreStop == nil || k.Lifecycle.PreStop.Exec == nil {
				say("it does not become a lame duck")
			}
		}
		if needs == 0 && w.component() != "redis" {
			say("no time to drain")
		}
		if grace == nil || time.Duration(*grace)*time.Second < needs+10*time.Second {
			say("the grace period is %v, draining takes %v", grace, needs)
		}
	})
}

// scaling: what is scaled exists and has no fixed number of pods; the rest has one.
func scaling(c *cluster) (out []string) {
	scaled := map[string]bool{}
	for _, s := range c.scaled {
		scaled[s.Spec.ScaleTargetRef.Name] = true
		if len(s.Spec.Triggers) == 0 || s.Spec.MinReplicaCount < 1 {
			out = append(out, s.Name+" scales by nothing, or to nothing")
		}
	}
	for _, s := range c.autoscalers {
		scaled[s.Spec.ScaleTargetRef.Name] = true
	}
	for _, w := range c.workloads {
		if w.deployment == nil {
			continue
		}
		if fixed := w.deployment.Spec.Replicas != nil; scaled[w.name] == fixed {
			out = append(out, fmt.Sprintf("%s: scaled %t, and a number of pods: %t", w.name, scaled[w.name], fixed))
		}
		delete(scaled, w.name)
	}
	for name := range scaled {
		out = append(out, "no deployment "+name+" to scale")
	}
	for _, m := range c.monitors {
		for _, w := range c.workloads {
			reads := matches(&m.Spec.Selector, w.pod.Labels)
			port := intstr.FromString(m.Spec.PodMetricsEndpoints[0].Port)
			if has := hasPort(w.pod.Spec.Containers[0].Ports, port); has != reads {
				out = append(out, fmt.Sprintf("%s is collected: %t, and has the port: %t", w.name, reads, has))
			}
		}
	}
	return out
}
