package test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// peer is an end of a connection: a workload, or labels of a namespace outside, or an address.
type peer struct {
	workload  *workload
	namespace string // labelled kubernetes.io/metadata.name
	cidr      string
}

func (p peer) is(n networkingv1.NetworkPolicyPeer) bool {
	switch {
	case n.IPBlock != nil:
		return p.cidr == n.IPBlock.CIDR
	case n.NamespaceSelector != nil:
		return p.namespace != "" && matches(n.NamespaceSelector, map[string]string{corev1.LabelMetadataName: p.namespace})
	}
	return p.workload != nil && matches(n.PodSelector, p.workload.pod.Labels)
}

func permits(ports []networkingv1.NetworkPolicyPort, port int) bool {
	for _, p := range ports {
		if p.Port == nil || p.Port.IntValue() == port {
			return true
		}
	}
	return len(ports) == 0
}

func anyPeer(peers []networkingv1.NetworkPolicyPeer, p peer) bool {
	for _, n := range peers {
		if p.is(n) {
			return true
		}
	}
	return len(peers) == 0
}

// reaches evaluates the policies as a network plugin does: both ends must permit a connection, if a policy
// selects them.
func (c *cluster) reaches(from, to peer, port int) bool {
	leaves, arrives := from.workload == nil, to.workload == nil
	for _, p := range c.policies {
		if from.workload != nil && matches(&p.Spec.PodSelector, from.workload.pod.Labels) {
			for _, r := range p.Spec.Egress {
				leaves = leaves || anyPeer(r.To, to) && permits(r.Ports, port)
			}
		}
		if to.workload != nil && matches(&p.Spec.PodSelector, to.workload.pod.Labels) {
			for _, r := range p.Spec.Ingress {
				arrives = arrives || anyPeer(r.From, from) && permits(r.Ports, port)
			}
		}
	}
	return leaves && arrives
}

// policies select what is there, and cover all pods in both directions.
func policies(c *cluster) (out []string) {
	if len(c.policies) == 0 {
		return nil // switched off
	}
	for _, w := range c.workloads {
		in, egress := false, false
		for _, p := range c.policies {
			for _, kind := range p.Spec.PolicyTypes {
				if matches(&p.Spec.PodSelector, w.pod.Labels) {
					in, egress = in || kind == "Ingress", egress || kind == "Egress"
				}
			}
		}
		if !in || !egress {
			out = append(out, w.name+" is open")
		}
	}
	for _, p := range c.policies {
		if !c.selects(networkingv1.NetworkPolicyPeer{PodSelector: &p.Spec.PodSelector}, nil) {
			out = append(out, p.Name+" selects no pods")
		}
		var peers []networkingv1.NetworkPolicyPeer
		for _, r := range p.Spec.Ingress {
			peers = append(peers, r.From...)
			if len(r.From) == 0 {
				out = append(out, p.Name+" lets in everybody")
			}
			for _, port := range r.Ports {
				if !c.selects(networkingv1.NetworkPolicyPeer{PodSelector: &p.Spec.PodSelector}, port.Port) {
					out = append(out, fmt.Sprintf("%s: no pod has the port %v", p.Name, port.Port))
				}
			}
		}
		for _, r := range p.Spec.Egress {
			peers = append(peers, r.To...)
			if len(r.To) == 0 && len(r.Ports) == 0 {
				out = append(out, p.Name+" lets out everything")
			}
		}
		for _, n := range peers {
			if n.PodSelector != nil && n.NamespaceSelector == nil && !c.selects(n, nil) {
				out = append(out, fmt.Sprintf("%s: no pod matches %v", p.Name, n.PodSelector.MatchLabels))
			}
		}
	}
	return out
}

// selects reports whether a peer is one of the workloads, with the port if there is one.
func (c *cluster) selects(n networkingv1.NetworkPolicyPeer, port *intstr.IntOrString) bool {
	for _, w := range c.workloads {
		if !(peer{workload: w}).is(n) {
			continue
		}
		for _, k := range w.pod.Spec.Containers {
			if port == nil || hasPort(k.Ports, *port) {
				return true
			}
		}
	}
	return false
}

// Who reaches whom. What neither table lists is not permitted.
func TestWhoReachesWhom(t *testing.T) {
	c := render(t, variations["ingress"])
	allowed := map[string]bool{}
	for _, s := range []string{"core", "provider", "toolrunner", "listener", "uibridge"} {
		allowed[s+" nats 4222"] = true
	}
	allowed["nats nats 6222"] = true
	for _, s := range []string{"core", "redis"} {
		allowed[s+" redis 6379"], allowed[s+" redis 26379"] = true, true
	}
	found := map[string]bool{}
	for _, from := range c.workloads {
		for _, to := range c.workloads {
			for _, k := range to.pod.Spec.Containers {
				for _, port := range k.Ports {
					way := fmt.Sprintf("%s %s %d", from.component(), to.component(), port.ContainerPort)
					if is := c.reaches(peer{workload: from}, peer{workload: to}, int(port.ContainerPort)); is != allowed[way] {
						t.Errorf("%s: %t", way, is)
					}
					found[way] = true
				}
			}
		}
	}
	for way := range allowed {
		if !found[way] {
			t.Errorf("%s: there is no such port", way)
		}
	}
	outside := map[string]bool{
		"ingress-nginx uibridge 7070": true, "ingress-nginx listener 8090": true,
	}
	for _, namespace := range []string{"ingress-nginx", "default", "kube-system"} {
		for _, w := range c.workloads {
			for _, port := range []int{4222, 6222, 6379, 7070, 8080, 8090, 8222, 26379} {
				way := fmt.Sprintf("%s %s %d", namespace, w.component(), port)
				if is := c.reaches(peer{namespace: namespace}, peer{workload: w}, port); is != outside[way] {
					t.Errorf("%s: %t", way, is)
				}
			}
		}
	}
	for _, w := range c.workloads {
		if !c.reaches(peer{workload: w}, peer{namespace: "kube-system"}, 53) {
			t.Errorf("%s finds no names", w.name)
		}
		for _, port := range []int{22, 80, 443, 6443} {
			want := w.component() == "provider" && port == 443
			if is := c.reaches(peer{workload: w}, peer{cidr: "0.0.0.0/0"}, port); is != want {
				t.Errorf("%s reaches port %d of the internet: %t", w.name, port, is)
			}
		}
	}
}

// With an external bus and view, the services reach their ports.
func TestWhoReachesWhatIsOutside(t *testing.T) {
	c := render(t, variations["external"])
	for _, w := range c.workloads {
		for port, want := range map[int]bool{4222: true, 6379: w.component() == "core", 26379: false} {
			if is := c.reaches(peer{workload: w}, peer{cidr: "192.0.2.1/32"}, port); is != want {
				t.Errorf("%s reaches port %d: %t", w.name, port, is)
			}
		}
	}
	c = render(t, variations["keda"])
	for _, w := range c.workloads {
		want := w.component() != "nats" && w.component() != "redis"
		if is := c.reaches(peer{namespace: "keda"}, peer{workload: w}, 8080); is != want {
			t.Errorf("KEDA reads the metrics of %s: %t", w.name, is)
		}
	}
}
