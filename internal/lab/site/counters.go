package site

import (
	"errors"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// Counters are the counters of the site's hosts at one time.
type Counters struct {
	// Nodes are those of each node, Director those of the director.
	Nodes    []result.SiteNode
	Director result.SiteNode
	// Visitors is the number of bytes that the visitors' host has sent, IPv6 those that
	// it has received and sent in IPv6 packets.
	Visitors, IPv6 uint64
}

// Count reads the counters.
func (s *Site) Count() (c Counters, err error) {
	var errs []error
	for _, n := range s.Nodes {
		at := result.SiteNode{Name: n.Name, Gateway: n.gateway != nil}
		at.CPU, at.Throttled, err = n.used()
		errs = append(errs, err)
		at.Sent, err = n.host.Sent()
		errs = append(errs, err)
		at.Requests, err = n.server.Requests()
		at.Requests += n.earlier
		errs = append(errs, err)
		c.Nodes = append(c.Nodes, at)
	}
	c.Visitors, err = s.client.Sent()
	errs = append(errs, err)
	errs = append(errs, s.client.Do(func() (err error) {
		c.IPv6, err = topology.ReadIPv6Bytes()
		return err
	}))
	if d := s.director; d != nil {
		c.Director.Name = directorName
		c.Director.CPU, c.Director.Throttled, err = d.group.Used()
		errs = append(errs, err)
		c.Director.Sent, err = d.host.Sent()
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

// Since returns the differences to earlier counters.
func (c Counters) Since(earlier Counters) Counters {
	d := Counters{Director: less(c.Director, earlier.Director), Visitors: c.Visitors - earlier.Visitors,
		IPv6: c.IPv6 - earlier.IPv6}
	for i, n := range c.Nodes {
		d.Nodes = append(d.Nodes, less(n, earlier.Nodes[i]))
	}
	return d
}

func less(n, earlier result.SiteNode) result.SiteNode {
	n.CPU, n.Throttled = n.CPU-earlier.CPU, n.Throttled-earlier.Throttled
	n.Sent, n.Requests = n.Sent-earlier.Sent, n.Requests-earlier.Requests
	return n
}

// tolerance is the share of the visitors' bytes that may pass the director in the
// wrong direction: its health checks, ARP and its events.
const tolerance = 0.02

// Prove compares the counters of a run with the bytes that visitors have received and
// verified. With several gateways, the nodes must have sent all of them, and the
// director must have sent no more than what the visitors sent: a director on the way
// back would have sent the responses too.
func Prove(path suite.Path, d Counters, received uint64) *result.Proof {
	p := &result.Proof{Counter: "bytes that the gateways' hosts sent", Want: received}
	serving := 0
	for i, n := range d.Nodes {
		if i < path.Gateways {
			p.Got += n.Sent
			if n.Sent > 0 {
				serving++
			}
		}
	}
	p.OK = received > 0 && p.Got >= p.Want && serving == path.Gateways
	if path.Gateways == 1 {
		return p
	}
	p.Absent = "bytes of responses through the director"
	if limit := d.Visitors + uint64(tolerance*float64(received)) + healthBytes; d.Director.Sent > limit {
		p.AbsentGot, p.OK = d.Director.Sent-d.Visitors, false
	}
	if d.Director.Sent < d.Visitors/2 {
		p.Counter, p.Want, p.Got, p.OK = "bytes that the director forwarded", d.Visitors/2, d.Director.Sent, false
	}
	return p
}

// ProveFamily returns the proof that the packets of the visitors' host were of IPv6, if the
// path requires it and they were not; nil otherwise.
func ProveFamily(path suite.Path, d Counters, received uint64) *result.Proof {
	if !path.Family.Is6() || d.IPv6 >= received {
		return nil
	}
	return &result.Proof{Counter: "bytes in IPv6 packets of the visitors' host", Want: received, Got: d.IPv6}
}

// healthBytes is what the director may send for its checks in a short run.
const healthBytes = 1 << 20
