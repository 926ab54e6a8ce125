package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/addresses"
	"fairlead/internal/cluster/agreement"
	"fairlead/internal/cluster/bgp"
	"fairlead/internal/cluster/certificates"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/gateways"
	"fairlead/internal/cluster/hold"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/cluster/names"
	"fairlead/internal/cluster/networks"
	"fairlead/internal/cluster/services"
	"fairlead/internal/daemon"
	"fairlead/internal/explain/across"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/loopback"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/virtual"
	"fairlead/internal/process/hosted"
	"fairlead/internal/sandbox"
)

// keyAge is the age at which the host's private key of an encrypted network is replaced.
const keyAge = 30 * 24 * time.Hour

// repeatEvery is how long a failed transaction about the cluster's networks or services waits.
const repeatEvery = 2 * time.Second

// node is the host's part of a cluster.
type node struct {
	*member.Member
	networks  *networks.Networks
	services  *services.Services
	agreement *agreement.Agreement
	gateways  *gateways.Gateways
	names     *names.Server
	addresses *addresses.Addresses
	holds     *hold.Runner
	virtual   *virtual.Handle
	bgp       *bgp.Announcer
	loopback  *loopback.Handle
	// certificates are the gateway's.
	certificates *certificates.Certificates
}

// end closes the handles. If everything shall be removed, it closes the virtual addresses before.
func (n *node) end(tearDown bool) (err error) {
	if tearDown {
		err = errors.Join(n.holds.Leave(), n.bgp.Leave())
	}
	n.loopback.Close()
	return errors.Join(err, n.virtual.End())
}

// anyway is the store for virtual addresses. Their protocol allows a removed node to release them.
type anyway struct{ *node }

// Commit implements kv.Committer.
func (a anyway) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	return a.CommitAnyway(ctx, t)
}

// newNode returns the host's part of a cluster. A host whose membership cannot be read does not
// start: it would lose what came from the cluster.
func newNode(opt Options, host *kernel.Host, d *daemon.Daemon, idle *idle, all *certificates.Certificates) (*node,
	error) {
	links, err := host.Virtual()
	if err != nil {
		return nil, err
	}
	n := &node{names: names.NewServer(opt.Log, host.Do), virtual: links, certificates: all}
	n.holds, err = hold.New(hold.Config{Host: links, Store: anyway{n}, Peers: n,
		Memory: filepath.Join(opt.Run, "addresses.json"), Note: d.Note, Log: opt.Log})
	if err != nil {
		return nil, errors.Join(err, links.End())
	}
	n.networks = networks.New(networks.Config{Host: d, Store: n, Peers: n, Containers: sandbox.New(),
		Frozen:  func() string { return n.NotActing() },
		Prepare: sync.OnceFunc(host.EBPF().Overlays().Prepare),
		Keys:    filepath.Join(clusterDir(opt), "keys"), KeyAge: keyAge,
		Changed: idle.networks, Every: repeatEvery, Log: opt.Log})
	n.services = services.New(services.Config{Host: d, Store: n, Changed: idle.services, Every: repeatEvery,
		Log: opt.Log})
	n.agreement = agreement.New(agreement.Config{Host: d, Peers: n, Changed: idle.agreement})
	n.gateways = gateways.New(gateways.Config{Host: daemon.NewClusterGateway(d), Store: n,
		Check: hosted.CheckCluster, Size: hosted.SizeOfExpressions, Changed: idle.gateways, Every: repeatEvery,
		Log: opt.Log})
	n.addresses = addresses.New(addresses.Config{Runner: n.holds, Store: n, Note: d.Note, Now: time.Now})
	if n.loopback, err = host.Loopback(); err != nil {
		return nil, errors.Join(err, links.End())
	}
	n.bgp = bgp.New(bgp.Config{Host: n.loopback, Store: n, Log: opt.Log})
	n.Member, err = newMember(opt, host, d, idle, n.holds.Unable, n.holds, n.certificates, n.networks, n.services,
		n.agreement, n.gateways, n.addresses, n.bgp, names.NewConsumer(n.names, d.ClusterNetworks))
	if err != nil {
		n.loopback.Close()
		return nil, errors.Join(err, links.End())
	}
	n.Answer(hold.Question, n.holds.Answer)
	n.Answer(agreement.Question, n.agreement.Answer)
	n.Answer(networks.AddressQuestion, n.networks.AnswerAddress)
	n.Answer(certificates.Question, n.certificates.Answer)
	here := &across.Host{Pins: Pins(opt), Attachments: d.Attachments}
	n.Answer(across.Question, here.Answer)
	return n, nil
}

// run runs the tasks of the node until ctx ends.
func (n *node) run(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer n.names.Close()
	defer tasks.Wait()
	tasks.Go(func() { n.networks.Run(ctx) })
	tasks.Go(func() { n.services.Run(ctx) })
	tasks.Go(func() { n.agreement.Run(ctx) })
	tasks.Go(func() { n.certificates.Run(ctx) })
	tasks.Go(func() { n.gateways.Run(ctx) })
	if !n.Joined() { // an earlier process may have been killed
		if err := n.holds.Leave(); err != nil {
			return err
		}
	}
	tasks.Go(func() { n.holds.Run(ctx) })
	tasks.Go(func() { n.bgp.Run(ctx) })
	return n.Member.Run(ctx)
}

// otherNodes are the other nodes of the cluster. It implements across.Nodes.
type otherNodes struct{ *node }

// Holder returns the node that has an address of its sandboxes, or that holds it as a virtual address.
func (o otherNodes) Holder(a netip.Addr) (id, name string, err error) {
	if id, name, err = o.networks.Holder(a); api.CodeOf(err) == api.NotFound {
		return o.addresses.Holder(a)
	}
	return id, name, err
}

// ExplainFlow asks the node that has the destination of a flow.
func (n *node) ExplainFlow(ctx context.Context, q api.FlowQuestion) (api.FlowPart, error) {
	return across.Ask(ctx, otherNodes{n}, q)
}

// Objects implements admin.ClusterCalls.
func (n *node) Objects() ([]api.ClusterObject, error) { return member.Objects(n.Member) }

// Status returns the state of the cluster, with its virtual addresses. If ask is set, the other nodes are asked
// how far they are.
func (n *node) Status(ctx context.Context, ask bool) (api.ClusterStatus, error) {
	s, err := n.Member.Status(ctx)
	if err == nil && ask {
		n.Member.AskNodes(ctx, &s)
	}
	if err == nil {
		s.Addresses, _ = n.addresses.List() // there are none before the first snapshot
	}
	return s, err
}

// attachments are those of the daemon. In networks of the cluster they can have addresses of other nodes'
// blocks.
type attachments struct {
	*daemon.Daemon
	networks *networks.Networks
}

// Attach implements admin.AttachmentCalls.
func (a attachments) Attach(ctx context.Context, r api.AttachRequest) (api.Result, error) {
	if r.DryRun {
		return a.Daemon.Attach(ctx, r)
	}
	done, err := a.networks.ReserveAddresses(ctx, r.Network, r.Addresses)
	if err != nil {
		return api.Result{}, err
	}
	defer done()
	return a.Daemon.Attach(ctx, r)
}

// specs applies Specs: the daemon those parts that are about this host, and the cluster its own.
type specs struct {
	*daemon.Daemon
	addresses *addresses.Addresses
	networks  *networks.Networks
	services  *services.Services
	gateways  *gateways.Gateways
}

// Apply implements admin.SpecCalls. If the daemon refuses the Spec, the cluster does not change, and if the
// cluster does not, the host does not.
func (s specs) Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error) {
	if !dry {
		for _, a := range spec.Attachments {
			done, err := s.networks.ReserveAddresses(ctx, a.Network, a.Addresses)
			if err != nil {
				return api.Result{}, err
			}
			defer done()
		}
	}
	shared, err := s.share(ctx, spec, true)
	if err != nil {
		return api.Result{}, err
	}
	if len(shared) > 0 && !dry {
		if result, err := s.Daemon.Apply(ctx, spec, true); err != nil {
			return result, err
		}
		if shared, err = s.share(ctx, spec, false); err != nil {
			return api.Result{}, err
		}
	}
	result, err := s.Daemon.Apply(ctx, spec, dry)
	result.Changed = result.Changed || len(shared) > 0
	result.Changes = slices.Concat(shared, result.Changes)
	return result, err
}

// share applies the parts of a Spec that belong to the cluster.
func (s specs) share(ctx context.Context, spec api.Spec, dry bool) (added []api.Change, err error) {
	if len(spec.Addresses) > 0 {
		if added, err = s.addresses.Apply(ctx, spec.Addresses, dry); err != nil {
			return nil, err
		}
	}
	changed, err := s.services.Apply(ctx, spec, dry)
	if err != nil {
		return nil, err
	}
	served, err := s.gateways.Apply(ctx, spec, dry)
	return slices.Concat(added, changed, served), err
}

// newMember returns the membership of the host.
func newMember(opt Options, host *kernel.Host, d *daemon.Daemon, idle *idle, unable func() map[netip.Addr]string,
	consumers ...member.Consumer) (*member.Member, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of the host: %w", err)
	}
	return member.New(member.Config{
		Consumers: consumers,
		Dir:       clusterDir(opt), Run: opt.Run, Version: opt.Version, Host: name, Open: storeOpener(opt, d.Note),
		Listen: member.Listen, Dial: (&net.Dialer{}).DialContext, MTU: host.Net().MTU,
		Links: linkReader(host), Machine: member.Machine("/"),
		Unable: unable, Attached: d.ClusterAttachments, Note: d.Note,
		Changed: idle.touch, Log: opt.Log, Now: time.Now,
	})
}

// linkReader returns the function that reads the addresses of the host's links. It may be called concurrently.
func linkReader(host *kernel.Host) func() ([]member.Link, error) {
	var mu sync.Mutex
	reader := rtnl.AddressReader{From: host.Net()}
	return func() (links []member.Link, err error) {
		mu.Lock()
		defer mu.Unlock()
		all, err := reader.Read()
		for _, l := range all {
			links = append(links, member.Link(l))
		}
		return links, err
	}
}

// storeOpener returns the function that connects to the store of a cluster. The snapshot is in a
// file beside the membership.
func storeOpener(opt Options, note func(api.Event)) func(api.EtcdAccess, string, string, string) (member.Store, error) {
	return func(access api.EtcdAccess, cluster, id, dir string) (member.Store, error) {
		connect := func(access api.EtcdAccess) (mirror.Source, error) {
			source, err := etcd.Open(etcd.Config{Access: access, Cluster: cluster})
			if err != nil {
				return nil, &api.Fault{Code: api.Invalid, Err: err}
			}
			return source, nil
		}
		source, err := connect(access)
		if err != nil {
			return nil, err
		}
		m, err := mirror.Open(mirror.Config{Source: source, Open: connect, Path: snapshotFile(dir), Cluster: id,
			Note: note, Log: opt.Log})
		if err != nil {
			return nil, errors.Join(err, source.Close())
		}
		return m, nil
	}
}
