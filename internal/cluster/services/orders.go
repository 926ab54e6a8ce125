package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
)

// SetService creates or changes a virtual service of the cluster. Returns a Fault: NotFound if the host
// belongs to no cluster, Invalid for settings that a cluster's service cannot have, Conflict if the
// service differs from r.Was, exists with other settings although r.Was is nil, or is declared by files.
func (s *Services) SetService(ctx context.Context, r api.ClusterServiceRequest) error {
	snapshot, _, err := s.latest.Current()
	if err != nil {
		return err
	}
	r.Origin = ""
	now := record.Service{Spec: completed(r.VirtualService), Ingress: r.Ingress}
	if err := check(snapshot, now); err != nil {
		return api.Faultf(api.Invalid, "service %s: %w", r.Name, err)
	}
	e, err := s.newest(ctx, r.Name)
	if err != nil {
		return err
	}
	have, exists := record.Service{}, e.Value != nil
	if exists {
		if have, err = record.Decode[record.Service](e); err != nil {
			return err
		}
	}
	was := shown(have)
	switch {
	case exists && sameSettings(have, now):
		return nil
	case exists && have.Spec.Origin != model.FromCommand:
		return spec.OtherOrigin("service "+r.Name+" of the cluster", have.Spec.Origin)
	case exists && r.Was == nil:
		return api.Faultf(api.Conflict, "service %s of the cluster already exists with different settings: change it with "+
			"`fairlead service set --cluster`, or choose another name", r.Name)
	case r.Was != nil && (!exists || !was.Equal(*r.Was)):
		return changedMeanwhile(r.Name)
	}
	return s.commit(ctx, r.Name, e, record.Encode(now))
}

// RemoveService removes a virtual service from the cluster. Returns a Fault with code NotFound if there
// is none.
func (s *Services) RemoveService(ctx context.Context, name string) error {
	if _, _, err := s.latest.Current(); err != nil {
		return err
	}
	e, err := s.newest(ctx, name)
	switch {
	case err != nil:
		return err
	case e.Value == nil:
		return noService(name)
	}
	// A record that cannot be read can be removed.
	if have, err := record.Decode[record.Service](e); err == nil && have.Spec.Origin != model.FromCommand {
		return spec.OtherOrigin("service "+name+" of the cluster", have.Spec.Origin)
	}
	return s.commit(ctx, name, e, nil)
}

// newest returns the entry of a service, without a value if there is none. It asks the store: another node can have
// changed the service a moment ago, and the snapshot waits while the host applies an earlier one.
func (s *Services) newest(ctx context.Context, name string) (kv.Entry, error) {
	key := record.Key(record.Services, name)
	ctx, cancel := context.WithTimeout(ctx, publisher.Limit)
	defer cancel()
	have, err := kv.Read(ctx, s.cfg.Store, key)
	if err != nil {
		return kv.Entry{}, fmt.Errorf("read service %s of the cluster: %w", name, err)
	}
	return have[key], nil
}

// Service returns a virtual service of the cluster as it was declared. Returns a Fault with code
// NotFound if there is none.
func (s *Services) Service(ctx context.Context, name string) (api.ClusterService, error) {
	snapshot, _, err := s.latest.Current()
	if err != nil {
		return api.ClusterService{}, err
	}
	e, exists := snapshot.Get(record.Key(record.Services, name))
	if !exists {
		if e, err = s.newest(ctx, name); err == nil && e.Value == nil {
			err = noService(name)
		}
	}
	if err != nil {
		return api.ClusterService{}, err
	}
	r, err := record.Decode[record.Service](e)
	return shown(r), err
}

// Unapplied returns a Fault with code Conflict if the cluster has a service that this host does not have. If the store
// does not answer, only the snapshot counts.
func (s *Services) Unapplied(ctx context.Context, name string) error {
	if _, err := s.Service(ctx, name); err != nil {
		return nil
	}
	return api.Faultf(api.Conflict, "service %s belongs to the cluster, and this host has not applied it: `fairlead "+
		"cluster status` shows why; change or remove it for all hosts with the option --cluster", name)
}

func noService(name string) error {
	return api.Faultf(api.NotFound, "the cluster has no service %s: create it with `fairlead service add --cluster`", name)
}

func changedMeanwhile(name string) error {
	return api.Faultf(api.Conflict, "service %s was changed meanwhile: read it again and repeat the request", name)
}

func shown(r record.Service) api.ClusterService {
	return api.ClusterService{VirtualService: r.Spec, Ingress: r.Ingress}
}

// commit replaces or deletes the record of a service if it is still the one that was read.
func (s *Services) commit(ctx context.Context, name string, e kv.Entry, value []byte) error {
	key := record.Key(record.Services, name)
	limited, cancel := context.WithTimeout(ctx, publisher.Limit)
	defer cancel()
	result, err := s.cfg.Store.Commit(limited, kv.Txn{
		If:   []kv.Condition{{Key: key, Revision: e.Revision, Value: e.Value}},
		Then: []kv.Change{{Key: key, Value: value}}})
	if err != nil {
		return fmt.Errorf("change service %s of the cluster: %w: repeat the command", name, err)
	}
	if !result.Committed {
		return changedMeanwhile(name)
	}
	return nil
}

// completed returns the service with the data plane that a cluster's services have, and with the cheapest
// forwarding method with which real servers on all nodes see the client: their answers then bypass the
// node that the client has dialled.
func completed(v model.VirtualService) model.VirtualService {
	v = v.Clone()
	if v.Plane == "" || v.Plane == model.PlaneAuto {
		v.Plane = model.PlaneEBPF
	}
	masqueraded := v.SourceNAT == model.SourceNATMasqueraded
	if v.Forward == "" && !masqueraded {
		v.Forward = model.ForwardDirect
	}
	v.Forward = cmp.Or(v.Forward, model.ForwardNAT)
	return v
}

// check returns an error for settings that the cluster cannot have: those of its record, and
// those that do not match its nodes, networks and other services.
func check(s kv.Snapshot, r record.Service) error {
	if err := r.Validate(); err != nil {
		if r.Spec.Forward == model.ForwardDirect && slices.ContainsFunc(r.Spec.Reals, hasPort) {
			err = fmt.Errorf("%w. Packets reach real servers on other nodes untranslated, so that they see the client. "+
				"With --forward nat --source-nat masqueraded, ports can differ, and real servers see the node instead", err)
		}
		return err
	}
	return errors.Join(checkIngress(s, r.Ingress), checkReals(s, r.Spec), checkAddresses(s, r.Spec),
		checkFree(s, r.Spec))
}

func hasPort(r model.RealServer) bool { return r.Port != 0 }

// checkIngress returns an error for a name that no node has.
func checkIngress(s kv.Snapshot, names []string) error {
	for i, name := range names {
		if _, exists := s.Get(record.Key(record.NodeNames, name)); !exists {
			return fmt.Errorf("ingress %s: the cluster has no such node: see `fairlead cluster status`", name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("ingress %s: it is listed twice", name)
		}
	}
	return nil
}

// checkReals returns an error for a selector of a network in which packets of the service do not reach
// the sandboxes of other nodes.
func checkReals(s kv.Snapshot, v model.VirtualService) error {
	for _, r := range v.Reals {
		if r.Select.IsZero() {
			continue
		}
		n, exists, err := record.Get[record.Network](s, record.Key(record.Networks, r.Select.Network))
		switch {
		case err != nil:
			return err
		case !exists:
			return fmt.Errorf("real server %s: network %s is none of the cluster's", r, r.Select.Network)
		case n.Direct && v.Forward == model.ForwardDirect:
			return fmt.Errorf("real server %s: forward direct needs network %s to be an overlay (driver vxlan): with driver "+
				"%s, another node would get the packet instead of its sandbox. With --forward nat --source-nat "+
				"masqueraded, real servers see the node instead of the client", r, n.Spec.Name, n.Spec.Driver)
		case !n.Direct && v.Forward == model.ForwardNAT:
			return fmt.Errorf("real server %s: forward nat needs network %s to have driver routed: the node would not "+
				"translate answers that come out of an overlay (driver %s). With --forward direct they go to the client, "+
				"and real servers listen at the service's port", r, n.Spec.Name, n.Spec.Driver)
		}
	}
	return nil
}

// checkAddresses returns an error for addresses of nodes that a service cannot have.
func checkAddresses(s kv.Snapshot, v model.VirtualService) (err error) {
	for _, n := range record.Each[record.Node](s, record.Nodes) { // derive reports the others
		for _, a := range n.Addresses {
			if v.Forward == model.ForwardDirect && slices.Contains(v.Addresses, a) {
				err = fmt.Errorf("address %s: node %s has it, and each real server would get it too: choose another", a, n.Name)
			}
			if slices.ContainsFunc(v.Reals, func(r model.RealServer) bool { return r.Address == a }) {
				err = fmt.Errorf("real server %s: it is node %s itself: want sandboxes, or hosts that are no nodes", a, n.Name)
			}
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, checkSubnets(s, v.Addresses))
}

// checkSubnets returns an error for an address that a node can lease.
func checkSubnets(s kv.Snapshot, addrs []netip.Addr) error {
	for _, n := range record.Each[record.Network](s, record.Networks) {
		for _, sub := range n.Spec.Subnets {
			if i := slices.IndexFunc(addrs, sub.Prefix.Contains); i >= 0 {
				return fmt.Errorf("address %s: it is in subnet %s of network %s: choose one outside", addrs[i], sub.Prefix,
					n.Spec.Name)
			}
		}
	}
	return nil
}

// checkFree returns an error if another service of the cluster has an address and port of the service.
// Two that are created at the same time are compared by each host.
func checkFree(s kv.Snapshot, v model.VirtualService) error {
	for _, o := range record.Each[record.Service](s, record.Services) {
		if o.Spec.Name == v.Name || o.Spec.Proto != v.Proto {
			continue
		}
		for _, f := range o.Spec.Frontends() {
			if slices.Contains(v.Frontends(), f) {
				return fmt.Errorf("%s already belongs to service %s: choose another address or port", f, o.Spec.Name)
			}
		}
	}
	return nil
}
