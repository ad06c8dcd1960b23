package test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Each check finds what it is there for.
func TestEveryCheckCanFail(t *testing.T) {
	container := func(c *cluster) *corev1.Container { return &c.workload("core").pod.Spec.Containers[0] }
	yes, root := true, int64(0)
	for name, m := range map[string]struct {
		check, says string
		change      func(c *cluster)
	}{
		"root": {"restricted", "core: the pod", func(c *cluster) {
			c.workload("core").pod.Spec.SecurityContext.RunAsUser = &root
		}},
		"no seccomp profile": {"restricted", "redis: the pod", func(c *cluster) {
			c.workload("redis").pod.Spec.SecurityContext.SeccompProfile = nil
		}},
		"a token": {"restricted", "a token", func(c *cluster) {
			c.workload("nats").pod.Spec.AutomountServiceAccountToken = &yes
		}},
		"a path of the host": {"restricted", "a path of the host", func(c *cluster) {
			c.workload("core").pod.Spec.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/"}
		}},
		"a writable root": {"restricted", "core/core: the container", func(c *cluster) {
			container(c).SecurityContext.ReadOnlyRootFilesystem = nil
		}},
		"escalation": {"restricted", "the container", func(c *cluster) {
			container(c).SecurityContext.AllowPrivilegeEscalation = &yes
		}},
		"a capability": {"restricted", "the container", func(c *cluster) {
			container(c).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		}},
		"an init container": {"restricted", "core/init: the container", func(c *cluster) {
			c.workload("core").pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "x:1"}}
		}},
		"a port of the host": {"restricted", "a port of the host", func(c *cluster) {
			container(c).Ports[0].HostPort = 80
		}},
		"latest": {"restricted", "no version", func(c *cluster) {
			container(c).Image = "skandha/core:latest"
		}},
		"no tag": {"restricted", "no version", func(c *cluster) {
			container(c).Image = "registry:5000/skandha/core"
		}},
		"no request": {"resources", "core/core", func(c *cluster) {
			delete(container(c).Resources.Requests, "cpu")
		}},
		"no limit": {"resources", "core/core", func(c *cluster) { container(c).Resources.Limits = nil }},
		"a small limit": {"resources", "GOMEMLIMIT", func(c *cluster) {
			small := resource.MustParse("512Mi")
			r := container(c).Resources
			r.Limits["memory"], r.Requests["memory"] = small, small
		}},
		"no liveness probe": {"probes", "no liveness", func(c *cluster) { container(c).LivenessProbe = nil }},
		"a probe of no port": {"probes", "the port", func(c *cluster) {
			container(c).ReadinessProbe.HTTPGet.Port = intstr.FromString("web")
		}},
		"a budget of nothing": {"budgets", "0 budgets", func(c *cluster) {
			c.budgets[0].Spec.Selector.MatchLabels["app.kubernetes.io/component"] = "x"
		}},
		"a budget that keeps nodes": {"budgets", "is of", func(c *cluster) {
			zero := intstr.FromInt32(0)
			c.budgets[0].Spec.MaxUnavailable = &zero
		}},
		"a budget of all": {"budgets", "2 budgets", func(c *cluster) {
			delete(c.budgets[0].Spec.Selector.MatchLabels, "app.kubernetes.io/component")
		}},
		"a service of nothing": {"services", "selects 0", func(c *cluster) {
			c.services["skandha-nats"].Spec.Selector["x"] = "y"
		}},
		"a service of all": {"services", "selects 7", func(c *cluster) {
			delete(c.services["skandha-nats"].Spec.Selector, "app.kubernetes.io/component")
		}},
		"a service's port": {"services", "has no port", func(c *cluster) {
			c.services["skandha-uibridge"].Spec.Ports[0].TargetPort = intstr.FromString("web")
		}},
		"no headless service": {"services", "no headless service", func(c *cluster) {
			delete(c.services, "skandha-nats-peers")
		}},
		"an Ingress to nothing": {"services", "no service x", func(c *cluster) {
			c.ingresses[0].Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "x"
		}},
		"an Ingress without TLS": {"services", "without TLS", func(c *cluster) { c.ingresses[0].Spec.TLS = nil }},
		"an unknown secret": {"references", "no secret x", func(c *cluster) {
			c.workload("core").pod.Spec.Volumes[0].Secret.SecretName = "x"
		}},
		"an unknown key": {"references", "no key x", func(c *cluster) {
			c.workload("uibridge").pod.Spec.Volumes[0].Secret.Items[0].Key = "x"
		}},
		"no config map": {"references", "no config map skandha-config", func(c *cluster) {
			delete(c.configs, "skandha-config")
		}},
		"no claim": {"references", "no claim skandha-listener", func(c *cluster) {
			delete(c.claims, "skandha-listener")
		}},
		"a mount without a volume": {"mounts", "no volume x", func(c *cluster) {
			container(c).VolumeMounts[0].Name = "x"
		}},
		"a volume without a mount": {"mounts", "no container mounts tmp", func(c *cluster) {
			container(c).VolumeMounts = container(c).VolumeMounts[:1]
		}},
		"a writable secret": {"mounts", "may be written", func(c *cluster) {
			container(c).VolumeMounts[0].ReadOnly = false
		}},
		"a variable that core does not read": {"environment", "core reads no SKANDHA_UI_DATA", func(c *cluster) {
			container(c).Env = append(container(c).Env, corev1.EnvVar{Name: "SKANDHA_UI_DATA", Value: "/data"})
		}},
		"a variable that no script reads": {"environment", "no script reads MEMORY", func(c *cluster) {
			c.workload("redis").pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MEMORY"}}
		}},
		"a variable that is used before it is set": {"environment", "does not come before", func(c *cluster) {
			container(c).Env = append([]corev1.EnvVar{{Name: "SKANDHA_TOKEN", Value: "$(SKANDHA_LOG)"}}, container(c).Env...)
		}},
		"a variable twice": {"environment", "twice", func(c *cluster) {
			container(c).Env = append(container(c).Env, container(c).Env[0])
		}},
		"a rollout with fewer pods": {"rollouts", "core: a rollout", func(c *cluster) {
			one := intstr.FromInt32(1)
			c.workload("core").deployment.Spec.Strategy.RollingUpdate.MaxUnavailable = &one
		}},
		"two pods with one volume": {"rollouts", "two pods", func(c *cluster) {
			two := int32(2)
			c.workload("toolrunner").deployment.Spec.Replicas = &two
		}},
		"a short grace period": {"draining", "grace period", func(c *cluster) {
			short := int64(30)
			c.workload("provider").pod.Spec.TerminationGracePeriodSeconds = &short
		}},
		"no lame duck": {"draining", "lame duck", func(c *cluster) {
			c.workload("nats").pod.Spec.Containers[0].Lifecycle = nil
		}},
		"an open pod": {"policies", "is open", func(c *cluster) {
			c.policies = c.policies[:0:0]
			c.policies = append(c.policies, render(t, "").policies[1:]...)
			c.workload("core").pod.Labels["app.kubernetes.io/component"] = "other"
			c.workload("other").pod.Labels["app.kubernetes.io/instance"] = "other"
		}},
		"a policy of nothing": {"policies", "selects no pods", func(c *cluster) {
			c.policies[1].Spec.PodSelector.MatchLabels["x"] = "y"
		}},
		"a peer of nothing": {"policies", "no pod matches", func(c *cluster) {
			c.policies[1].Spec.Ingress[0].From[0].PodSelector.MatchLabels["x"] = "y"
		}},
		"a policy's port": {"policies", "no pod has the port", func(c *cluster) {
			port := intstr.FromInt32(4223)
			c.policies[1].Spec.Ingress[0].Ports[0].Port = &port
		}},
		"everybody": {"policies", "lets in everybody", func(c *cluster) {
			c.policies[1].Spec.Ingress[0].From = nil
		}},
		"scaled and fixed": {"scaling", "core: scaled false", func(c *cluster) {
			c.workload("core").deployment.Spec.Replicas = nil
		}},
		"a scaler of nothing": {"scaling", "no deployment x", func(c *cluster) {
			s := render(t, variations["keda"]).scaled[0]
			s.Spec.ScaleTargetRef.Name = "x"
			c.scaled = append(c.scaled, s)
		}},
		"a monitor of nothing": {"scaling", "is collected", func(c *cluster) {
			c.monitors = render(t, variations["keda"]).monitors
			c.monitors[0].Spec.Selector.MatchExpressions = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := render(t, variations["ingress"])
			m.change(c)
			if found := strings.Join(checks[m.check](c), "\n"); !strings.Contains(found, m.says) {
				t.Errorf("%s found %q, want %q", m.check, found, m.says)
			}
		})
	}
	t.Run("an unknown field", func(t *testing.T) {
		doc := "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {port: 1}\n"
		if err := (&cluster{services: map[string]*corev1.Service{}}).add("v1 Service", doc); err == nil {
			t.Error("it is accepted")
		}
	})
}
