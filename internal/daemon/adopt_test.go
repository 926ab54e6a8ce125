package daemon_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"

	"github.com/google/go-cmp/cmp"
)

// copying is a host that copies the files of the store before each apply: they are
// what a daemon that is killed then leaves behind.
type copying struct {
	allOfHost
	from   store.Places
	copies []store.Places
	dir    func() string
	err    error
	// refused is a port whose translation the host refuses, without a reason that names the publish.
	refused model.PortRange
}

func (c *copying) Apply(ops []plan.Op) (int, error) {
	to := store.Places{State: c.dir(), Run: c.dir()}
	for from, to := range map[string]string{c.from.State: to.State, c.from.Run: to.Run} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			c.err = err
		}
	}
	c.copies = append(c.copies, to)
	for _, op := range ops {
		if m, is := op.Object.(plan.NFTMapping); is && !op.Del && m.Ports == c.refused {
			return 0, errors.New("the kernel refuses the test")
		}
	}
	return c.allOfHost.Apply(ops)
}

// sorted returns the desired state with its parts ordered by name.
func sorted(w model.Desired) model.Desired {
	w = w.Clone()
	slices.SortFunc(w.Attachments, func(a, b model.Attachment) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.Publishes, model.Publish.Compare)
	return w
}

// listens returns a function that fails if a process uses the TCP address.
func listens(addr string) func() error {
	return func() error {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			err = l.Close()
		}
		return err
	}
}

// TestKillWhileObjectsAreAdoptedOneByOne starts a daemon that cannot apply its stored
// state as a whole, because the kernel refuses one of its rules and does not say which. A
// kill at any moment of that start loses no attachment, publish or service.
func TestKillWhileObjectsAreAdoptedOneByOne(t *testing.T) {
	w := newWorld(t)
	w.start().network(lan)
	boxes := []watchedSandbox{w.watchedSandbox(), w.watchedSandbox(), w.watchedSandbox()}
	for i, b := range boxes {
		w.attach(to(b))
		w.publish(b, []model.Publish{port(uint16(8080+i), 80)})
	}
	w.serve(site("web", at("10.0.0.7", 80)))
	want, err := w.store.Desired()
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.sh("nft flush ruleset")
	c := &copying{allOfHost: w.host, from: w.at, dir: t.TempDir, refused: model.Port(8081)}
	w.wrap = c
	w.start()
	statuses := func() (all []string) {
		for _, v := range w.Attachments() {
			for _, p := range v.Publishes {
				all = append(all, string(v.Status)+" "+p.HostPorts.String()+" "+p.Problem)
			}
		}
		slices.Sort(all)
		return all
	}
	w.RemoveDead()
	got := statuses()
	if len(got) != 3 || got[0] != "up 8080 " || !strings.HasPrefix(got[1], "up 8081 ") || got[1] == "up 8081 " ||
		got[2] != "up 8082 " {
		t.Errorf("after the start: %q", got)
	}
	if s := w.Services(); len(s) != 1 || s[0].Status == api.ServiceFailed {
		t.Errorf("services after the start: %+v", s)
	}
	w.stop()
	if c.err != nil || len(c.copies) < 4 {
		t.Fatalf("%d copies, %v", len(c.copies), c.err)
	}
	for i, at := range c.copies {
		left, err := store.ReadDesired(at)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sorted(want), sorted(left), cmp.Comparer(model.VirtualService.Equal),
			cmp.Comparer(model.Publish.Equal)); diff != "" {
			t.Errorf("a kill before step %d of %d leaves (-want +got):\n%s", i+1, len(c.copies), diff)
		}
	}
	// The next daemon finds what a killed one has left.
	w.wrap, w.at = nil, c.copies[len(c.copies)/2]
	if err := os.Remove(filepath.Join(w.at.Run, "pid")); err != nil {
		t.Fatal(err)
	}
	w.start()
	if got := statuses(); !slices.Equal(got, []string{"up 8080 ", "up 8081 ", "up 8082 "}) {
		t.Errorf("after the next start: %q", got)
	}
	if s := w.Services(); len(s) != 1 {
		t.Errorf("services after the next start: %+v", s)
	}
}

// TestLinksWithoutGroupAreAdopted starts a daemon on a host whose links have no device
// group, as an older daemon has left them. They are put into their groups, and are not
// replaced.
func TestLinksWithoutGroupAreAdopted(t *testing.T) {
	w := newWorld(t)
	w.start().network(lan)
	w.network(model.Network{Name: "shut", Driver: model.DriverRouted, Internal: true,
		Subnets: []model.Subnet{{Prefix: prefix("172.31.0.0/24")}}})
	w.attach(to(w.watchedSandbox()))
	shut := w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: "shut", Sandbox: shut.pid}})
	links := func() string {
		return w.sh("for l in fl-lan fv-web; do ip -o link show $l | grep -oE '^[0-9]+|group [^ ]+'; done")
	}
	want := links()
	if !strings.Contains(want, "group 1717660019") || !strings.Contains(want, "group 1717660020") {
		t.Fatalf("the links are\n%s", want)
	}
	w.stop()
	w.sh("ip link set fl-lan group default; ip link set fv-web group default")
	w.start()
	if got := links(); got != want {
		t.Errorf("the links were, each with its index and its group\n%s\nand after the start\n%s", want, got)
	}
}
