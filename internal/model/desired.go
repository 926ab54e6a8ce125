package model

import (
	"errors"
	"slices"
)

// Desired is the desired state of a host as commands, files and container engines
// requested it. It includes attachments of sandboxes that do not run now.
type Desired struct {
	Networks    []Network    `json:"networks,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
	// Publishes name attachments as their endpoints.
	Publishes []Publish `json:"publishes,omitempty"`
	// Services name their real servers by address or by a selector.
	Services []VirtualService `json:"services,omitempty"`
	// Gateway is nil if there is none. Nothing changes its values.
	Gateway *Gateway `json:"gateway,omitempty"`
	// ClusterGateway is nil if the host belongs to no cluster, or if that has no objects of the gateway.
	ClusterGateway *ClusterGateway `json:"clusterGateway,omitempty"`
}

// PrivateNetwork reports whether the network was created for an attachment.
func (w Desired) PrivateNetwork(name string) bool {
	return slices.ContainsFunc(w.Attachments, func(a Attachment) bool { return a.Private && a.Network == name })
}

// Clone returns a deep copy.
func (w Desired) Clone() Desired {
	s := State{Networks: w.Networks, Publishes: w.Publishes, Services: w.Services}.Clone()
	c := Desired{Networks: s.Networks, Attachments: slices.Clone(w.Attachments), Publishes: s.Publishes,
		Services: s.Services, Gateway: w.Gateway,
		ClusterGateway: w.ClusterGateway}
	for i := range c.Attachments {
		c.Attachments[i].Endpoint, c.Attachments[i].Lease = c.Attachments[i].Endpoint.clone(),
			c.Attachments[i].Lease.clone()
	}
	return c
}

// Network returns the network with the name.
func (w Desired) Network(name string) (Network, bool) {
	return State{Networks: w.Networks}.Network(name)
}

// WithNetwork returns the desired state with the network, which replaces one with the
// same name.
func (w Desired) WithNetwork(n Network) Desired {
	w.Networks = replaced(w.Networks, n, func(o Network) bool { return o.Name == n.Name })
	return w
}

// WithoutNetwork returns the desired state without the network with the name.
func (w Desired) WithoutNetwork(name string) Desired {
	w.Networks = slices.DeleteFunc(slices.Clone(w.Networks), func(n Network) bool { return n.Name == name })
	return w
}

// Attachment returns the attachment with the name.
func (w Desired) Attachment(name string) (Attachment, bool) {
	return find(w.Attachments, func(a Attachment) bool { return a.Name == name })
}

// WithAttachment returns the desired state with the attachment, which replaces one with
// the same name.
func (w Desired) WithAttachment(a Attachment) Desired {
	w.Attachments = replaced(w.Attachments, a, func(o Attachment) bool { return o.Name == a.Name })
	return w
}

// WithoutAttachments returns the desired state without the attachments with these
// names, their publishes and their private networks.
func (w Desired) WithoutAttachments(names map[string]bool) Desired {
	next := w
	next.Attachments = slices.DeleteFunc(slices.Clone(w.Attachments), func(a Attachment) bool { return names[a.Name] })
	next.Publishes = slices.DeleteFunc(slices.Clone(w.Publishes), func(p Publish) bool { return names[p.Endpoint] })
	next.Networks = w.NetworksLeft(next.Attachments)
	return next
}

// WithoutSandboxes returns the desired state without what belonged to the sandboxes
// that have ended. An attachment with Keep set stays and waits.
func (w Desired) WithoutSandboxes(dead map[string]bool) Desired {
	next := w
	next.Attachments, next.Publishes = nil, nil
	gone := map[string]bool{}
	for _, a := range w.Attachments {
		if dead[a.Ref] {
			waited := a.Sandbox == "" && a.Origin == FromDocker
			a.Sandbox, a.Namespace, a.Lease = "", "", Lease{}
			if !a.Keep || waited { // Docker creates a new endpoint whenever it starts a container
				gone[a.Name] = true
				continue
			}
		}
		next.Attachments = append(next.Attachments, a)
	}
	for _, p := range w.Publishes {
		if !gone[p.Endpoint] {
			next.Publishes = append(next.Publishes, p)
		}
	}
	next.Networks = w.NetworksLeft(next.Attachments)
	return next
}

// ClusterAttachments returns the names of the attachments to networks of the cluster.
func (w Desired) ClusterAttachments() (names []string) {
	for _, a := range w.Attachments {
		if n, _ := w.Network(a.Network); n.Origin == FromCluster {
			names = append(names, a.Name)
		}
	}
	return names
}

// ReachedNetworks returns the networks of the cluster in which this host sends the packets of clients to
// sandboxes of other hosts, also if it has none of its own there: those in which services of the cluster and its
// gateway select sandboxes. On a host with a gateway, those in the applied state stay: connections last longer
// than the objects of the gateway that chose their servers.
func (w Desired) ReachedNetworks(applied State) map[string]bool {
	all := map[string]bool{}
	for _, n := range applied.Networks {
		all[n.Name] = w.Gateway != nil && n.Origin == FromCluster
	}
	for _, v := range w.Services {
		for _, r := range v.Reals {
			if v.Origin == FromCluster && !v.NoIngress {
				all[r.Select.Network] = true
			}
		}
	}
	if w.Gateway != nil && w.ClusterGateway != nil {
		for _, s := range w.ClusterGateway.Config.Selectors() {
			all[s.Network] = true
		}
	}
	for name := range all {
		if n, _ := w.Network(name); n.Origin != FromCluster {
			delete(all, name)
		}
	}
	return all
}

// NetworksLeft returns the networks that remain with these attachments: all but the
// private networks that only other attachments use.
func (w Desired) NetworksLeft(attachments []Attachment) []Network {
	unused := map[string]bool{}
	for _, a := range w.Attachments {
		unused[a.Network] = unused[a.Network] || a.Private
	}
	for _, a := range attachments {
		unused[a.Network] = false
	}
	return slices.DeleteFunc(slices.Clone(w.Networks), func(n Network) bool { return unused[n.Name] })
}

// PublishesOf returns the publishes of an attachment.
func (w Desired) PublishesOf(attachment string) (all []Publish) {
	for _, p := range w.Publishes {
		if p.Endpoint == attachment {
			all = append(all, p)
		}
	}
	return all
}

// SetPublishes returns the desired state with publishes of an attachment. They replace
// all that the origin has set before.
func (w Desired) SetPublishes(attachment string, by Origin, publishes []Publish) Desired {
	set := slices.Clone(publishes)
	for i := range set {
		set[i].Origin = by
	}
	return w.ReplacePublishes(attachment, func(p Publish) bool { return p.Origin == by }, set)
}

// ReplacePublishes returns the desired state with publishes of an attachment. They
// replace those of its publishes for which replaced returns true.
func (w Desired) ReplacePublishes(attachment string, replaced func(Publish) bool, publishes []Publish) Desired {
	added := slices.Clone(publishes)
	for i := range added {
		added[i].Endpoint = attachment
	}
	next := w
	next.Publishes = make([]Publish, 0, len(w.Publishes)+len(added))
	for _, p := range w.Publishes {
		if p.Endpoint != attachment || !replaced(p) {
			next.Publishes = append(next.Publishes, p)
			continue
		}
		if i := slices.IndexFunc(added, p.Same); i >= 0 {
			next.Publishes = append(next.Publishes, added[i])
			added = slices.Delete(added, i, i+1)
		}
	}
	next.Publishes = append(next.Publishes, added...)
	return next
}

// Service returns a copy of the virtual service with the name.
func (w Desired) Service(name string) (VirtualService, bool) {
	v, ok := find(w.Services, func(v VirtualService) bool { return v.Name == name })
	return v.Clone(), ok
}

// WithService returns the desired state with the service, which replaces one with the
// same name.
func (w Desired) WithService(v VirtualService) Desired {
	w.Services = replaced(w.Services, v, func(o VirtualService) bool { return o.Name == v.Name })
	return w
}

// WithoutService returns the desired state without the service with the name.
func (w Desired) WithoutService(name string) Desired {
	w.Services = slices.DeleteFunc(slices.Clone(w.Services), func(v VirtualService) bool { return v.Name == name })
	return w
}

// replaced returns a copy of a list in which an object replaces the same one, or is the last.
func replaced[T any](all []T, one T, same func(T) bool) []T {
	all = slices.Clone(all)
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i] = one
		return all
	}
	return append(all, one)
}

// Permitted returns the state without the services of the cluster that are not valid, and why they are not: an earlier
// version has stored them, and accepted commands as their checks.
func (w Desired) Permitted() (Desired, error) {
	var errs []error
	w.Services = slices.DeleteFunc(slices.Clone(w.Services), func(v VirtualService) bool {
		if v.Origin != FromCluster || v.Validate() == nil {
			return false
		}
		errs = append(errs, wrap("service", v.Name, v.Validate()))
		return true
	})
	return w, errors.Join(errs...)
}
