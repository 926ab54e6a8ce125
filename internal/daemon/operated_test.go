package daemon_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/test/daemons"
	"fairlead/test/place"
)

// The first sandboxes are attached with the API, the others are containers.
const ownBoxes = 6

var containers = []int{6, 7, 8}

// operatedPorts is the number of host ports to publish, from 8000 on.
const operatedPorts = 12

// operatedNetworks are the networks to attach sandboxes to.
var operatedNetworks = []model.Network{
	{Name: "switched", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: prefix("172.30.0.0/24")}, {Prefix: prefix("fd00:30::/64")}}},
	{Name: "second", Driver: model.DriverBridge, Subnets: []model.Subnet{{Prefix: prefix("172.31.0.0/24")}}},
	{Name: "routed", Driver: model.DriverRouted, Subnets: []model.Subnet{{Prefix: prefix("172.32.0.0/24")}}},
	{Name: "branches", Driver: model.DriverMacvlan, Parent: "up0",
		Subnets: []model.Subnet{{Prefix: prefix("172.33.0.0/24")}}},
}

// expected is the model: the state that the host must have.
type expected struct {
	networks  map[string]bool
	attached  map[attachment]bool
	published map[uint16]mappings
	// externals are the containers that run; runs counts the runs of each.
	externals map[int]externalContainer
	runs      map[int]int
}

// externalContainer is a container on one of Docker's networks.
type externalContainer struct {
	run, network int
	ports        []uint16
}

// mappings is the target of a host port, and the publish mode.
type mappings struct {
	at  attachment
	via model.Via
}

func nothingExpected() expected {
	return expected{map[string]bool{}, map[attachment]bool{}, map[uint16]mappings{}, map[int]externalContainer{},
		map[int]int{}}
}

func (m expected) clone() expected {
	return expected{maps.Clone(m.networks), maps.Clone(m.attached), maps.Clone(m.published), maps.Clone(m.externals),
		maps.Clone(m.runs)}
}

func (m expected) detach(at attachment) {
	delete(m.attached, at)
	maps.DeleteFunc(m.published, func(_ uint16, l mappings) bool { return l.at == at })
}

// operated is a host with a daemon, sandboxes, and the model.
type operated struct {
	testing.TB
	*daemons.Daemon
	w       *world
	random  *rand.Rand
	watched []watchedSandbox
	m       expected
	done    map[string]int
}

func newOperated(t testing.TB, w *world, random *rand.Rand) *operated {
	t.Helper()
	dir := t.TempDir()
	do := daemons.In(dir)
	do.Docker = filepath.Join(dir, "docker")
	o := &operated{TB: t, w: w, random: random, m: nothingExpected(), done: map[string]int{}}
	for i := range ownBoxes + len(containers) {
		o.watched = append(o.watched, o.newBox(i))
	}
	o.Daemon = daemons.New(t, do, child.Place{Netns: w.host.Netns()})
	return o
}

// newBox returns a sandbox that sends its number on port 80.
func (o *operated) newBox(i int) watchedSandbox {
	o.Helper()
	b := o.w.watchedSandbox()
	stop := place.Serve(o, b.in, ":80", func(conn net.Conn) {
		_, _ = fmt.Fprint(conn, "box", i) // the client may have closed the connection
	})
	// A socket keeps its namespace alive: close it when the sandbox ends.
	go func() { _ = b.Wait(); stop() }()
	return b
}

// expect fails the test unless the daemon answered with the code.
func (o *operated) expect(err error, code api.Code, what string, args ...any) {
	o.Helper()
	if err == nil && code == "" || err != nil && code != "" && api.CodeOf(err) == code {
		return
	}
	o.Errorf("%s: %v, want code %q", fmt.Sprintf(what, args...), err, code)
}

func (o *operated) attachAt(at attachment) error {
	i := slices.IndexFunc(operatedNetworks, func(n model.Network) bool { return n.Name == at.network })
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{172, 30 + byte(i), 0, 10 + byte(at.watchedSandbox)})}
	if i == 0 {
		addrs = append(addrs, netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", 10+at.watchedSandbox)))
	}
	_, err := admin.Attach.Do(context.Background(), o.Client, api.AttachRequest{Endpoint: model.Endpoint{
		Name: at.name(), Network: at.network, Sandbox: o.watched[at.watchedSandbox].pid, Interface: "net" +
			fmt.Sprint(i), Addresses: addrs}})
	return err
}

func (o *operated) publishAt(at attachment, p model.Publish) error {
	_, err := admin.Publish.Do(context.Background(), o.Client,
		api.PublishRequest{Target: at.name(), Publishes: []model.Publish{p}})
	return err
}

// make creates everything in a model.
func (o *operated) make(m expected) {
	o.Helper()
	for _, n := range operatedNetworks {
		if m.networks[n.Name] {
			_, err := admin.CreateNetwork.Do(context.Background(), o.Client, admin.NetworkRequest{Network: n})
			o.expect(err, "", "create network %s", n.Name)
		}
	}
	for at := range m.attached {
		o.expect(o.attachAt(at), "", "attach %s", at)
	}
	o.createDockerNetworks()
	for i, g := range m.externals {
		o.run(i, g)
	}
	for port, l := range m.published {
		if l.at.watchedSandbox >= ownBoxes {
			continue
		}
		o.expect(o.publishAt(l.at, model.Publish{Proto: model.TCP, Ports: model.Port(80), HostPorts: model.Port(port),
			Via: l.via}), "", "publish %d", port)
	}
	o.m = m
}

func (o *operated) removeAll() {
	o.Helper()
	for at := range o.m.attached {
		_, err := admin.Detach.Do(context.Background(), o.Client, api.DetachRequest{Name: at.name()})
		o.expect(err, "", "detach %s", at)
	}
	for i := range o.m.externals {
		o.stopContainer(i)
	}
	o.removeDockerNetworks()
	for name := range o.m.networks {
		_, err := admin.RemoveNetwork.Do(context.Background(), o.Client, admin.NetworkName{Name: name})
		o.expect(err, "", "remove network %s", name)
	}
	o.m = nothingExpected()
	o.check()
}

// names returns the attachments that are up.
func (o *operated) names() []string {
	o.Helper()
	all, err := o.Client.Attachments(context.Background())
	if err != nil {
		o.Fatal(err)
	}
	var names []string
	for _, v := range all {
		if v.Status == api.Up {
			names = append(names, v.Name)
		}
	}
	return names
}

func (o *operated) wanted() []string {
	var names []string
	for at := range o.m.attached {
		names = append(names, at.name())
	}
	for i := range o.m.externals {
		names = append(names, "docker-"+o.endpointID(i)[:12])
	}
	slices.Sort(names)
	return names
}

// untilAttached waits until the daemon has noticed which sandboxes have ended.
func (o *operated) untilAttached() {
	o.Helper()
	for deadline := time.Now().Add(place.Timeout); !slices.Equal(o.names(), o.wanted()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			o.Fatalf("attached are %v, want %v", o.names(), o.wanted())
		}
	}
}

// random matches what the kernel chooses for each link.
var random = regexp.MustCompile(`fe80::[0-9a-f:]+|link/ether [0-9a-f:]+|link-netnsid \d+|@if\d+|packets \d+ bytes \d+`)

// lasting returns the state of the host as sorted lines, without what the kernel
// chooses and what changes by itself.
func (o *operated) lasting() []string {
	o.Helper()
	text := random.ReplaceAllString(o.w.snapshot()+o.w.sh("bpftool net show | sed 's/([0-9]*)//; s/id [0-9]*//g'"), "…")
	// nft writes several elements per line, depending on their length.
	lines := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\n,{}", r) })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	// A bridge has a link-local address only if it ever had a port.
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, "fe80::/64") || strings.Contains(line, "inet6 …")
	})
	slices.Sort(lines)
	return lines
}

// check sends packets to all addresses and ports.
func (o *operated) check() {
	o.Helper()
	o.untilAttached()
	for at := range o.m.attached {
		i := slices.IndexFunc(operatedNetworks, func(n model.Network) bool { return n.Name == at.network })
		o.answers(fmt.Sprintf("172.%d.0.%d:80", 30+i, 10+at.watchedSandbox), fmt.Sprint("box", at.watchedSandbox))
	}
	for i, g := range o.m.externals {
		o.answers(fmt.Sprintf("172.%d.0.%d:80", 40+g.network, 10+i), fmt.Sprint("box", i))
	}
	for port := uint16(8000); port < 8000+operatedPorts; port++ {
		who := ""
		if l, ok := o.m.published[port]; ok {
			who = fmt.Sprint("box", l.at.watchedSandbox)
		}
		o.answers(fmt.Sprintf("127.0.0.1:%d", port), who)
		o.answers(fmt.Sprintf("[::1]:%d", port), who)
	}
	if strings.Count(o.w.sh("ip -o link"), "alias fairlead:") > 0 && len(o.m.attached) == 0 {
		o.Errorf("nothing is attached, but these links exist:\n%s", o.w.sh("ip -o link"))
	}
}

// answers fails the test unless the sandbox with the name in who answers at the address.
// If who is empty, nothing must answer.
func (o *operated) answers(addr, who string) {
	o.Helper()
	var said []byte
	conn, err := place.Dial(o.w.host.Do, "tcp", addr, place.Timeout)
	if err == nil {
		defer conn.Close()
		said, err = io.ReadAll(conn)
	}
	if string(said) != who || (err == nil) != (who != "") {
		o.Errorf("at %s answers %q (%v), want %q", addr, said, err, who)
	}
}
