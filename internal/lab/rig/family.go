package rig

import (
	"fmt"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/topology"
)

// countFamily reads how many bytes the client's network namespace has received and sent
// in IPv6 packets, if the rig has the client and its family is IPv6.
func (r *Rig) countFamily(c result.Client, n *Counters) (err error) {
	if !r.Path.Family.Is6() || !r.hosts(c) {
		return nil
	}
	err = r.inClient(c, func() (err error) {
		n.ip, err = topology.ReadIPv6Bytes()
		return err
	})
	if err != nil {
		return fmt.Errorf("count the IP packets of the client %s: %w", c, err)
	}
	n.hasIP = true
	return nil
}

// inClient runs fn on a thread in the client's network namespace.
func (r *Rig) inClient(c result.Client, fn func() error) error {
	site := siteOf(r.Path)
	switch {
	case c == result.Remote && site.visitor != "":
		return r.World.DoSandbox(site.visitor, fn)
	case c == result.Remote:
		return r.World.DoClient(fn)
	case c != result.Local && !site.inHost:
		return r.World.DoSandbox(residents[c], fn)
	}
	return r.World.DoServer(fn)
}

// ProveFamily replaces a proof if the client's packets were not of IPv6, as the path
// requires. Without counters of the client it changes nothing.
func ProveFamily(p *result.Proof, w Window) {
	if !w.After.hasIP || !p.OK {
		return
	}
	if got := w.After.ip - w.Before.ip; got < w.Received {
		*p = result.Proof{Counter: "bytes in IPv6 packets of the client", Want: w.Received, Got: got}
	}
}
