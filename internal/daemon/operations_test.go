package daemon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
)

// TestAnyOperations does random operations of users, with a daemon that is stopped and
// killed in between, and records the expected state in a model. At times and at the
// end, packets must arrive where the model says and nowhere else. Then everything is
// removed and the model's last state is created again: the host must have the same
// state.
//
// FAIRLEAD_OPERATIONS is the number of operations, FAIRLEAD_SEED the seed of their
// order.
func TestAnyOperations(t *testing.T) {
	seed := number(t, "FAIRLEAD_SEED", 1)
	total := number(t, "FAIRLEAD_OPERATIONS", 100)
	w := newWorld(t)
	w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; until ip link show up0 | grep -q \"state UP\"; do :; done")
	before := w.snapshot()
	o := newOperated(t, w, rand.New(rand.NewPCG(uint64(seed), 1)))
	o.createDockerNetworks()
	for i := range total {
		o.step()
		if t.Failed() {
			t.Fatalf("operation %d of seed %d failed", i, seed)
		}
		if i%100 == 99 {
			o.check()
		}
	}
	o.check()
	after := o.lasting()
	kept := o.m.clone()
	o.removeAll()
	o.Stop()
	w.unchanged(before)
	o.Start()
	o.make(kept)
	o.check()
	if diff := cmp.Diff(after, o.lasting()); diff != "" {
		t.Errorf("the state that was created again differs (-):\n%s", diff)
	}
	o.removeAll()
	o.Stop()
	w.unchanged(before)
	t.Logf("%d operations: %v", total, o.done)
}

func number(t *testing.T, name string, unset int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// operations are the possible operations, with the weight of each.
var operations = []struct {
	name   string
	weight int
	do     func(*operated)
}{
	{"create network", 6, (*operated).createNetwork},
	{"remove network", 3, (*operated).removeNetwork},
	{"attach", 25, (*operated).attachAny},
	{"detach", 12, (*operated).detachAny},
	{"publish", 30, (*operated).publishAny},
	{"unpublish", 14, (*operated).unpublishAny},
	{"run or stop a container", 16, (*operated).runContainer},
	{"end a sandbox", 4, (*operated).endBox},
	{"restart", 2, (*operated).restart},
	{"kill", 2, (*operated).killDaemon},
	{"kill under way", 2, (*operated).killMidway},
}

func (o *operated) step() {
	o.Helper()
	all := 0
	for _, op := range operations {
		all += op.weight
	}
	pick := o.random.IntN(all)
	for _, op := range operations {
		if pick -= op.weight; pick < 0 {
			o.done[op.name]++
			op.do(o)
			return
		}
	}
}

func (o *operated) createNetwork() {
	o.Helper()
	n := operatedNetworks[o.random.IntN(len(operatedNetworks))]
	_, err := admin.CreateNetwork.Do(context.Background(), o.Client, admin.NetworkRequest{Network: n})
	o.expect(err, "", "create network %s", n.Name)
	o.m.networks[n.Name] = true
}

func (o *operated) removeNetwork() {
	o.Helper()
	n := operatedNetworks[o.random.IntN(len(operatedNetworks))]
	want := api.Code("")
	for at := range o.m.attached {
		if at.network == n.Name {
			want = api.Conflict
		}
	}
	_, err := admin.RemoveNetwork.Do(context.Background(), o.Client, admin.NetworkName{Name: n.Name})
	o.expect(err, want, "remove network %s", n.Name)
	if want == "" {
		delete(o.m.networks, n.Name)
	}
}

func (o *operated) attachAny() {
	o.Helper()
	at := o.anyAttachment()
	want := api.Code("")
	if !o.m.networks[at.network] {
		want = api.NotFound
	}
	o.expect(o.attachAt(at), want, "attach %s", at)
	if want == "" {
		o.m.attached[at] = true
	}
}

func (o *operated) detachAny() {
	o.Helper()
	at := o.anyAttachment()
	_, err := admin.Detach.Do(context.Background(), o.Client, api.DetachRequest{Name: at.name()})
	o.expect(err, "", "detach %s", at)
	o.m.detach(at)
}

func (o *operated) publishAny() {
	o.Helper()
	at, p := o.anyAttachment(), o.anyPublish()
	if at.network == "branches" && p.Via == model.ViaEBPF {
		p.Via = model.ViaAuto // a sub-link has no host interface
	}
	want := api.Code("")
	if have, taken := o.m.published[p.HostPorts.First]; !o.m.attached[at] {
		want = api.NotFound
	} else if taken && have.at != at {
		want = api.Conflict
	}
	o.expect(o.publishAt(at, p), want, "publish %s to %s", p, at)
	if want == "" {
		o.m.published[p.HostPorts.First] = mappings{at, p.Via}
	}
}

func (o *operated) unpublishAny() {
	o.Helper()
	at, p := o.anyAttachment(), o.anyPublish()
	want := api.Code("")
	if !o.m.attached[at] {
		want = api.NotFound
	}
	_, err := admin.Unpublish.Do(context.Background(), o.Client,
		api.PublishRequest{Target: at.name(), Publishes: []model.Publish{p}})
	o.expect(err, want, "unpublish %s of %s", p, at)
	if o.m.published[p.HostPorts.First].at == at {
		delete(o.m.published, p.HostPorts.First)
	}
}

// endBox ends a sandbox, and starts another one with its number.
func (o *operated) endBox() {
	o.Helper()
	i := o.random.IntN(ownBoxes)
	o.watched[i].kill()
	for at := range o.m.attached {
		if at.watchedSandbox == i {
			o.m.detach(at)
		}
	}
	o.untilAttached()
	o.watched[i] = o.newBox(i)
}

func (o *operated) restart() {
	o.Helper()
	o.Stop()
	o.Start()
}

func (o *operated) killDaemon() {
	o.Helper()
	o.Kill()
	o.Start()
}

// killMidway kills the daemon during a request. The next daemon may have completed it
// or not: then the request is repeated.
func (o *operated) killMidway() {
	o.Helper()
	at := o.anyAttachment()
	if !o.m.networks[at.network] {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = o.attachAt(at) // it may succeed or fail
	}()
	time.Sleep(time.Duration(o.random.Int64N(int64(20 * time.Millisecond)))) // a random moment
	o.Kill()
	<-ended
	o.Start()
	o.expect(o.attachAt(at), "", "attach %s again", at)
	o.m.attached[at] = true
}

// attachment is a sandbox on a network.
type attachment struct {
	watchedSandbox int
	network        string
}

func (a attachment) name() string   { return fmt.Sprintf("box%d-%s", a.watchedSandbox, a.network) }
func (a attachment) String() string { return fmt.Sprintf("box %d to %s", a.watchedSandbox, a.network) }

func (o *operated) anyAttachment() attachment {
	return attachment{o.random.IntN(ownBoxes), operatedNetworks[o.random.IntN(len(operatedNetworks))].Name}
}

func (o *operated) anyPublish() model.Publish {
	return model.Publish{Proto: model.TCP, Ports: model.Port(80),
		HostPorts: model.Port(8000 + uint16(o.random.IntN(operatedPorts))),
		Via:       []model.Via{model.ViaNAT, model.ViaProxy, model.ViaEBPF}[o.random.IntN(3)]}
}
