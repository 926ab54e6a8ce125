package failover_test

import (
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/failover"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{failover.ServerRole: failover.ServerMain, failover.ClientRole: failover.ClientMain})
	os.Exit(m.Run())
}

const port = 8080

var target = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)

// host returns a new network namespace with lo up.
func host(t *testing.T) *netns.Namespace {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	shell.Run(t, ns.Do, "ip link set lo up")
	return ns
}

func startServer(t *testing.T, name string, ns *netns.Namespace) *failover.Server {
	t.Helper()
	s, err := failover.StartServer(t.Context(), name, port, child.Place{Netns: ns.File()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// until waits until a command in the namespace succeeds.
func until(t *testing.T, ns *netns.Namespace, command string) {
	t.Helper()
	shell.Run(t, ns.Do, "for i in $(seq 3000); do "+command+" && exit; sleep 0.01; done; exit 1")
}

// untilAnswered waits until clients have been answered: the server closes first,
// so its ends of connections are in TIME-WAIT after clients have closed theirs.
func untilAnswered(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	until(t, ns, "grep -q '^TCP: .* tw [1-9]' /proc/thread-self/net/sockstat")
}

// untilRefused waits until more clients have been refused.
func untilRefused(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	const resets = `awk '/^Tcp:/ { if (at) print $at; else for (i = 1; i <= NF; i++) if ($i == "OutRsts") at = i }' /proc/thread-self/net/snmp`
	first := strings.TrimSpace(shell.Run(t, ns.Do, resets))
	until(t, ns, "[ $("+resets+") -ge $(("+first+" + 5)) ]")
}

// TestClientCountsFailuresWithoutBalancer: a client counts the requests that a
// killed server does not answer.
func TestClientCountsFailuresWithoutBalancer(t *testing.T) {
	ns := host(t)
	o := failures(t, ns)
	for range 3 { // a server without CPU time has not answered in time, as if it had failed before
		if o.Early == 0 {
			break
		}
		o = failures(t, ns)
	}
	if o.Early > 0 || o.Failed == 0 || o.Recovery == 0 || o.Returned || o.By["a"] == 0 {
		t.Errorf("%+v", o)
	}
	if o.Errors["dial: connection refused"] == 0 {
		t.Errorf("no connection was refused: %v", o.Errors)
	}
}

// failures kills a server under load.
func failures(t *testing.T, ns *netns.Namespace) failover.Outcome {
	t.Helper()
	s := startServer(t, "a", ns)
	c, err := failover.StartClient(t.Context(), target, child.Place{Netns: ns.File()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	untilAnswered(t, ns)
	event := time.Now()
	s.Kill()
	untilRefused(t, ns)
	all, err := c.End()
	if err != nil {
		t.Fatal(err)
	}
	return failover.Judge(all, failover.Event{Server: "a", At: event, Back: time.Now()})
}

// TestSilentServerNeitherAnswersNorRefuses, and Resume undoes that.
func TestSilentServerNeitherAnswersNorRefuses(t *testing.T) {
	ns := host(t)
	s := startServer(t, "a", ns)
	ask := func() (by string, err error) {
		if failed := ns.Do(func() error { by, err = failover.Ask(target); return nil }); failed != nil {
			t.Fatal(failed)
		}
		return by, err
	}
	if err := s.Silence(); err != nil {
		t.Fatal(err)
	}
	if by, err := ask(); !os.IsTimeout(err) {
		t.Errorf("after Silence: got an answer of %q, %v; want a timeout", by, err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	by, err := ask()
	for end := time.Now().Add(30 * time.Second); os.IsTimeout(err) && time.Now().Before(end); { // on a busy machine
		by, err = ask()
	}
	if by != "a" {
		t.Errorf("after Resume: got an answer of %q, %v", by, err)
	}
}

func TestJudge(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms, took int, by, err string) failover.Request {
		return failover.Request{Start: began.Add(time.Duration(ms) * time.Millisecond).UnixNano(),
			Took: int64(took) * 1e6, By: by, Err: err}
	}
	e := failover.Event{Server: "a", At: began.Add(100 * time.Millisecond), Back: began.Add(500 * time.Millisecond)}
	got := failover.Judge([]failover.Request{
		at(0, 1, "a", ""),
		at(10, 1, "", "early"),
		at(90, 30, "", "reset"), // it was in flight
		at(200, 40, "b", ""),
		at(300, 1, "", "refused"),
		at(400, 1, "", "refused"),
		at(450, 1, "a", ""), // it answered before its return was requested
		at(600, 1, "b", ""),
		at(700, 5, "a", ""),
		at(800, 1, "a", ""),
	}, e)
	want := failover.Outcome{
		Asked: 8, Failed: 3, Early: 1, Recovery: 300 * time.Millisecond, Slowest: 40 * time.Millisecond,
		Return: 205 * time.Millisecond, Returned: true,
		By: map[string]int{"a": 4, "b": 2}, Errors: map[string]int{"reset": 1, "refused": 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if o := failover.Judge(nil, e); o.Returned || o.Asked > 0 {
		t.Errorf("without requests: %+v", o)
	}
}
