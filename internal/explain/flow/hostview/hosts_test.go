package hostview_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// topology is a host with a LAN (eth0), a bridge (br0) with the sandboxes a and
// b, and the sandbox c behind the veth link vc. Each has IPv4 and IPv6, routes to
// the others, and listens on port 80.
const topology = `
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
for n in "$a" "$b" "$c" "$lan"; do nsenter --net="$n" sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0; done
ip -batch - <<E
link set lo up
link add br0 type bridge
addr add 10.77.0.1/24 dev br0
addr add fd77::1/64 dev br0 nodad
link set br0 up
link add pa type veth peer name eth0 netns $a
link add pb type veth peer name eth0 netns $b
link add vc type veth peer name eth0 netns $c
link add eth0 type veth peer name eth0 netns $lan
link set pa master br0 up
link set pb master br0 up
addr add 10.78.0.1/30 dev vc
addr add fd78::1/64 dev vc nodad
link set vc up
addr add 198.18.0.1/24 dev eth0
addr add fd18::1/64 dev eth0 nodad
link set eth0 up
E
join() {
	nsenter --net="$1" ip -batch - <<E
link set lo up
addr add $2 dev eth0
addr add $3 dev eth0 nodad
link set eth0 up
route add $4 via $5
route add $6 via $7
E
}
join "$a" 10.77.0.2/24 fd77::2/64 default 10.77.0.1 default fd77::1
join "$b" 10.77.0.3/24 fd77::3/64 default 10.77.0.1 default fd77::1
join "$c" 10.78.0.2/30 fd78::2/64 default 10.78.0.1 default fd78::1
join "$lan" 198.18.0.7/24 fd18::7/64 10.76.0.0/14 198.18.0.1 fd70::/12 fd18::1
mac() { "$@" | sed -n 's/.*link.ether \([^ ]*\).*/\1/p'; }
a() { nsenter --net="$a" "$@"; }
b() { nsenter --net="$b" "$@"; }
c() { nsenter --net="$c" "$@"; }
`

// places are the ends of flows, with their addresses of both families.
var places = map[string][2]string{"host": {"", ""}, "a": {"10.77.0.2", "fd77::2"}, "b": {"10.77.0.3", "fd77::3"},
	"c": {"10.78.0.2", "fd78::2"}, "lan": {"198.18.0.7", "fd18::7"}}

// hosts are the host's addresses that the clients of each place dial.
var hosts = map[string][2]string{"a": {"10.77.0.1", "fd77::1"}, "b": {"10.77.0.1", "fd77::1"},
	"c": {"10.78.0.1", "fd78::1"}, "lan": {"198.18.0.1", "fd18::1"}}

// How long to wait for an answer: for an expected one on a busy machine, and for
// one that should not come.
const (
	expected   = 20 * time.Second
	unexpected = 1500 * time.Millisecond
)

// atOnce is how many hosts are tested in parallel: most of the time is spent
// waiting for answers that do not come.
const atOnce = 8

// floor is the share of flows that must be explained with certainty.
const floor = 0.7

// TestHandMadeHosts explains flows over hosts that scripts set up, and compares
// each verdict with the result of a real packet: no certain verdict may be wrong.
func TestHandMadeHosts(t *testing.T) {
	var mu sync.Mutex
	total, certain := 0, 0
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, s := range scenarios {
		running.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; running.Done() }()
			t.Run(s.name, func(t *testing.T) {
				n := s.check(t)
				mu.Lock()
				defer mu.Unlock()
				total, certain = total+len(s.flows), certain+n
			})
		}()
	}
	running.Wait()
	t.Logf("%d flows over %d hosts, %d with certainty", total, len(scenarios), certain)
	if total < 120 || float64(certain) < floor*float64(total) {
		t.Errorf("%d flows, %d of them explained with certainty: want 120, and %.0f %%", total, certain, 100*floor)
	}
}

// check builds the host, and returns how many of its flows are explained with
// certainty.
func (s scenario) check(t *testing.T) int {
	spaces := map[string]*netns.Namespace{}
	opt := hostview.Options{Sandboxes: map[string]string{}}
	env := os.Environ()
	for name := range places {
		ns := kerneltest.Netns(t)
		spaces[name] = ns
		if name != "host" && name != "lan" {
			opt.Sandboxes[name] = ns.Path()
		}
		env = append(env, fmt.Sprintf("%s=/proc/%d/fd/%d", name, os.Getpid(), ns.File().Fd()))
	}
	// nft requires a newline after each block.
	cmd := exec.Command("bash", "-ec", topology+strings.ReplaceAll(s.script, "; }", "\n}\n"))
	cmd.Env = env
	var out []byte
	if err := spaces["host"].Do(func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, ns := range spaces {
		listen(t, ns)
	}
	host, err := kernel.Open(spaces["host"].Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := spaces["host"].Do(func() error { return dropAt(t, s.drop) }); err != nil {
		t.Fatal(err)
	}
	var explained []explanation
	w, err := hostview.New(host, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, text := range s.flows {
		explained = append(explained, s.named(t, explain(t, w, text)))
	}
	n := 0
	var sent sync.WaitGroup
	for i := range explained {
		if explained[i].certain() {
			n++
		}
		sent.Go(func() { explained[i].compare(t, spaces) })
	}
	sent.Wait()
	return n
}

// dropAt attaches a program that drops everything to links of the thread's
// namespace.
func dropAt(t *testing.T, links []string) error {
	for _, name := range links {
		l, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		const drop = 2 // TC_ACT_SHOT
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()}})
		if err != nil {
			return err
		}
		defer prog.Close()
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		t.Cleanup(func() { at.Close() })
	}
	return nil
}

// explanation is a flow of a scenario and its explanation.
type explanation struct {
	flow.Explanation
	text, from string
	dial       netip.AddrPort
}

// certain reports whether the verdict says with certainty how the flow ends.
func (e explanation) certain() bool {
	return !e.Uncertain && e.Outcome != flow.Unknown && e.Outcome != flow.Leaves
}

func explain(t *testing.T, w *hostview.World, text string) explanation {
	from, dial, question := read(text)
	f, err := flow.Parse([]string{question})
	if err != nil {
		t.Fatal(err)
	}
	e, err := flow.Explain(w.Facts(), f)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return explanation{e, text, from, dial}
}

// compare sends the flow and compares the result with a certain verdict.
func (e explanation) compare(t *testing.T, spaces map[string]*netns.Namespace) {
	timeout := unexpected
	if e.certain() && (e.Outcome == flow.Delivered || e.Outcome == flow.Refused) {
		timeout = expected
	}
	result, err := send(spaces[e.from], e.dial, e.Proto == model.UDP, timeout)
	if err != nil {
		t.Error(err)
		return
	}
	right := map[flow.Outcome][]string{flow.Delivered: {"answered"}, flow.Refused: {"refused"},
		flow.Dropped: {"lost", "refused"},
		flow.NoRoute: {"lost"}}
	if e.certain() && !slices.Contains(right[e.Outcome], result) {
		t.Errorf("%s: it is %s, but the explanation is certain that it is %s: %s\n%s", e.text, result, e.Outcome,
			e.Verdict, hops(e.Explanation))
	}
	t.Logf("%-28s %-9s %-9s certain=%v %s %v", e.text, result, e.Outcome, e.certain(), e.Verdict, e.Caveats)
}

// read returns where a flow of a scenario begins, what its client dials, and the
// flow in the syntax of flow.Parse.
func read(text string) (from string, dial netip.AddrPort, question string) {
	words := strings.SplitN(text, " to ", 2)
	flowText, _, udp := strings.Cut(words[1], "/")
	i := strings.LastIndexByte(flowText, ':')
	to, port := flowText[:i], flowText[i+1:]
	from, family := strings.TrimSuffix(words[0], "6"), 0
	if from != words[0] {
		family = 1
	}
	to = strings.TrimSuffix(to, "6")
	if a, ok := places[to]; ok {
		if to == "host" {
			a = hosts[from]
		}
		to = a[family]
	}
	dial = netip.MustParseAddrPort(endpoint(to, port))
	client := from
	if from == "lan" {
		client = places[from][family]
	}
	question = fmt.Sprintf("%s to %s", client, dial)
	if udp {
		question += "/udp"
	}
	return from, dial, question
}

func endpoint(addr, port string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]:" + port
	}
	return addr + ":" + port
}

// hops lists an explanation's hops for a reader.
func hops(e flow.Explanation) string {
	var b strings.Builder
	for _, h := range e.Hops {
		fmt.Fprintf(&b, "  %s %s %s: %s [%s]\n", h.Kind, h.Where, h.Link, h.What, h.By)
	}
	return b.String()
}

// listen makes a namespace answer on port 80 of TCP and UDP.
func listen(t *testing.T, ns *netns.Namespace) {
	any6 := &unix.SockaddrInet6{Port: 80}
	var stream, datagram int
	err := ns.Do(func() (err error) {
		if stream, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		datagram, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err = errors.Join(err, unix.Bind(stream, any6), unix.Listen(stream, 128),
		unix.Bind(datagram, any6)); err != nil {
		t.Fatal(err)
	}
	// A datagram is answered from the address that it was sent to.
	if err := unix.SetsockoptInt(datagram, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		echo(datagram)
	}()
	t.Cleanup(func() {
		_ = unix.Shutdown(datagram, unix.SHUT_RD)
		<-done
		unix.Close(stream)
		unix.Close(datagram)
	})
}

// echo answers every datagram until the socket is shut down.
func echo(fd int) {
	buf, oob := make([]byte, 64), make([]byte, 256)
	for {
		_, n, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || from == nil {
			return
		}
		info, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(info) == 0 {
			return
		}
		// The interface is left to the routing table.
		packet := slices.Clone(info[0].Data)
		clear(packet[16:20])
		_ = unix.Sendmsg(fd, buf[:1], unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(packet[:16])}), from, 0)
	}
}

// send sends the first packet of a flow, and returns the result.
func send(ns *netns.Namespace, to netip.AddrPort, udp bool, timeout time.Duration) (string, error) {
	family, kind := unix.AF_INET6, unix.SOCK_STREAM
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if udp {
		kind = unix.SOCK_DGRAM
	}
	var fd int
	if err := ns.Do(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}); err != nil {
		return "", err
	}
	defer unix.Close(fd)
	err := unix.Connect(fd, at)
	events := int16(unix.POLLOUT)
	if udp && err == nil {
		events = unix.POLLIN
		_, err = unix.Write(fd, []byte("?"))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return meaning(err), nil
	}
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return "lost", nil
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if n > 0 {
			number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err != nil {
				return "", err
			}
			return meaning(unix.Errno(number)), nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return "", err
		}
	}
}

// meaning returns the result that a system call's error means.
func meaning(err error) string {
	switch {
	case errors.Is(err, unix.Errno(0)):
		return "answered"
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	}
	return "lost"
}
