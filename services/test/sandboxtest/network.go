package sandboxtest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/services/sandbox/agent"
)

// networkProbes look for a way out.
func networkProbes() []probe {
	return []probe{
		{name: "interfaces", try: interfaces},
		{name: "metadata address", try: func(a *attempt) (outcome, error) {
			return a.cannotReach([]string{"169.254.169.254", "fd00:ec2::254", "100.100.100.200", "169.254.170.2"}, []int{80})
		}},
		{name: "bus, Redis and canaries on loopback", try: func(a *attempt) (outcome, error) {
			return a.cannotReach([]string{"127.0.0.1", "127.0.0.53", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"},
				append(a.host.ports, 4222, 6379, 2375, 2376, 22))
		}},
		{name: "bus, Redis and canaries on the host's addresses", try: func(a *attempt) (outcome, error) {
			return a.cannotReach(a.host.addrs, append(a.host.ports, 4222, 6379, 2375))
		}},
		{name: "gateways", try: func(a *attempt) (outcome, error) {
			return a.cannotReach(append(gateways(a.host.addrs), "10.0.2.2", "172.17.0.1", "192.168.65.1", "host.docker.internal",
				"gateway.docker.internal"), append(a.host.ports, 53, 80))
		}},
		{name: "a server of the neighbour", try: neighbourServer},
		{name: "datagrams to the host", try: datagrams},
		{name: "DNS", try: dns},
		{name: "ICMP", try: icmp},
		{name: "the world", try: func(a *attempt) (outcome, error) {
			return a.cannotReach([]string{"1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"}, []int{53, 80, 443})
		}},
		{name: "bring an interface up", try: func(a *attempt) (outcome, error) {
			return a.mustRefuse(`
import fcntl
attempt(lambda: fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x1000)))`, no...)
		}},
	}
}

func interfaces(a *attempt) (outcome, error) {
	var names []string
	if err := a.eval(a.ctx, &names,
		`sorted({l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]} | set(n for _, n in socket.if_nameindex()) if attempt(socket.if_nameindex).startswith("done") else {l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]})`); err != nil {
		return outcome{}, err
	}
	// Tunnel devices that a kernel creates in every namespace are down and need a
	// capability to be brought up.
	names = slices.DeleteFunc(names, func(n string) bool {
		return slices.Contains([]string{
			"lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0",
		}, n)
	})
	if len(names) > 0 {
		return hole("there are interfaces besides lo: %q", names)
	}
	var routes []string
	if err := a.eval(a.ctx, &routes, `[l for l in open("/proc/net/route").read().splitlines()[1:]]`); err != nil {
		return outcome{}, err
	}
	if len(routes) > 0 {
		return hole("there are routes: %q", routes)
	}
	return refused("only lo, no route")
}

// cannotReach passes when the sandbox reaches no listener there. The canaries verify this
// if the sandbox lies.
func (a *attempt) cannotReach(addrs []string, ports []int) (outcome, error) {
	var said map[string]int
	err := a.eval(a.ctx, &said, fmt.Sprintf(`
out = {}
def reach(family, at):
    s = socket.socket(family)
    s.settimeout(0.5)
    try:
        s.connect(at)
        s.sendall(b"probe")
    finally:
        s.close()
for addr in %s:
    for port in %s:
        try:
            infos = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM)
        except OSError as e:
            out[str(e.args[-1])] = out.get(str(e.args[-1]), 0) + 1
            continue
        for info in infos[:2]:
            said = attempt(reach, info[0], info[4])
            if said.startswith("done"):
                said = "done: %%s port %%d" %% (addr, port)
            out[said] = out.get(said, 0) + 1
out`, pyList(addrs), strings.ReplaceAll(fmt.Sprint(ports), " ", ",")))
	if err != nil {
		return outcome{}, err
	}
	var notes []string
	for what, n := range said {
		if strings.HasPrefix(what, "done") {
			return hole("it was reached: %s", what)
		}
		notes = append(notes, fmt.Sprintf("%d × %s", n, what))
	}
	slices.Sort(notes)
	return refused("%s", strings.Join(notes, ", "))
}

// gateways guesses the addresses of an engine's gateways: the first address of every
// network of the host.
func gateways(addrs []string) (out []string) {
	for _, a := range addrs {
		if ip := net.ParseIP(a).To4(); ip != nil && !ip.IsLoopback() {
			out = append(out, net.IPv4(ip[0], ip[1], ip[2], 1).String(), net.IPv4(ip[0], ip[1], 0, 1).String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// neighbourServer lets another sandbox listen on all its addresses while this one calls.
func neighbourServer(a *attempt) (outcome, error) {
	var port int
	other := a.s.start(a.t, sandboxOptions{})
	ready, result := make(chan int, 1), make(chan error, 1)
	go func() { result <- serveFrom(a, other, ready) }()
	select {
	case port = <-ready:
	case err := <-result:
		return outcome{}, fmt.Errorf("the neighbour does not serve: %w", err)
	}
	o, err := a.cannotReach(append([]string{"127.0.0.1", "::1", "172.17.0.2", "172.17.0.3"}, a.host.addrs...), []int{port})
	if err != nil {
		return outcome{}, err
	}
	said, err := a.says(`
def reach():
    s = socket.socket(socket.AF_UNIX)
    s.connect("\0sandboxtest-neighbour")
attempt(reach)`)
	if err != nil {
		return outcome{}, err
	}
	if said != "ECONNREFUSED" && said != "EPERM" {
		return hole("an abstract socket of another sandbox: %s", said)
	}
	return o, other.end()
}

func datagrams(a *attempt) (outcome, error) {
	said, err := a.says(fmt.Sprintf(`
out = set()
for addr in %s:
    def send():
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(b"probe", (addr, %d))
    out.add(attempt(send))
" ".join(sorted(out))`, pyList(append([]string{"127.0.0.1", "::1", "255.255.255.255", "224.0.0.1"}, a.host.addrs...)),
		a.host.datagram))
	if err != nil {
		return outcome{}, err
	}
	return refused("%s; the canary saw none", said)
}

func dns(a *attempt) (outcome, error) {
	said, err := a.says(`
out = []
for name in ("localhost.example.com", "example.com", "metadata.google.internal", "host.docker.internal", "nats", "redis"):
    try:
        out.append(name + " is " + socket.getaddrinfo(name, 80)[0][4][0])
    except OSError:
        pass
" ".join(out)`)
	if err != nil {
		return outcome{}, err
	}
	if said != "" {
		return hole("names are resolved: %s", said)
	}
	return refused("no name is resolved")
}

func icmp(a *attempt) (outcome, error) {
	said, err := a.says(fmt.Sprintf(`
out = set()
for addr in %s:
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
        def ping():
            s = socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP)
            s.settimeout(1)
            s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (addr, 0))
            return s.recv(100)
        out.add(attempt(ping))
" ".join(sorted(out))`,
		pyList(append(slices.DeleteFunc(slices.Clone(a.host.addrs),
			func(s string) bool { return strings.Contains(s, ":") || strings.HasPrefix(s, "127.") }), "1.1.1.1"))))
	if err != nil {
		return outcome{}, err
	}
	if strings.Contains(said, "done") {
		return hole("an echo came back: %s", said)
	}
	return refused("%s", said)
}

// serveFrom listens in a sandbox, returns the port, and serves until the attempt ends.
func serveFrom(a *attempt, b *sandbox, ready chan<- int) error {
	var text strings.Builder
	_, err := b.run(a.ctx, agent.Run{
		Kind: agent.Python, Code: prelude + `
import select
t, u = socket.create_server(("", 0)), socket.socket(socket.AF_UNIX)
u.bind("\0sandboxtest-neighbour")
u.listen()
print(t.getsockname()[1], flush=True)
while True:
    for s in select.select([t, u], [], [])[0]:
        s.accept()[0].close()`,
		Output: func(_ agent.Stream, piece []byte) {
			text.Write(piece)
			if line, _, whole := strings.Cut(text.String(), "\n"); whole {
				port, _ := strconv.Atoi(line) // connections to port 0 fail
				select {
				case ready <- port:
				default:
				}
			}
		},
	})
	return err
}
