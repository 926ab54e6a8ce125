// Package names answers DNS questions for the names of a cluster's sandboxes, also of those on
// other hosts. It answers nothing else, and asks no other server.
//
// # Theory of operation
//
// A host listens at its own address in each of the cluster's networks. A sandbox asks there for
// NAME or NAME.NETWORK, and gets the addresses of the endpoints with this name in the network
// whose address it asked: names of other networks are not visible. All other questions get the
// response code REFUSED, upon which a resolver asks its next server.
//
// The answers follow from the endpoints in the mirror's snapshot, so they are the same on all
// hosts, and do not change while etcd is away.
//
// Only sandboxes of the network get answers: requests from addresses outside of its subnets are
// dropped. Each client has a limited rate and a limited number of connections, and the sizes of
// answers are limited. A client with unfinished questions keeps no other client from asking. A sandbox
// that uses the address of another one gets that one's answers, which are
// the same; the data path prevents that (docs/guide/security.md).
package names

import (
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Directory has the addresses of all names of a cluster. It must not be used concurrently; Lookups
// may use the Names that it returns.
type Directory struct {
	// endpoints has what each key of an endpoint contributes.
	endpoints map[string]entry
	// users has the keys of the endpoints with a name, in order.
	users map[name][]string
}

// name is a name in a network.
type name struct{ network, label string }

type entry struct {
	names     []name
	addresses []netip.Addr
}

// NewDirectory returns a directory without names.
func NewDirectory() *Directory {
	return &Directory{endpoints: map[string]entry{}, users: map[name][]string{}}
}

// Update takes the changes of an update. It ignores endpoints that it cannot read, and returns
// their keys.
func (d *Directory) Update(u kv.Update) (unreadable []string) {
	for _, key := range u.Changed {
		if !strings.HasPrefix(key, record.Endpoints) {
			continue
		}
		d.remove(key)
		e, ok, err := record.Get[record.Endpoint](u.Snapshot, key)
		switch {
		case err != nil:
			unreadable = append(unreadable, key)
		case ok:
			d.add(key, e)
		}
	}
	return unreadable
}

func (d *Directory) remove(key string) {
	for _, n := range d.endpoints[key].names {
		d.users[n] = slices.DeleteFunc(d.users[n], func(k string) bool { return k == key })
		if len(d.users[n]) == 0 {
			delete(d.users, n)
		}
	}
	delete(d.endpoints, key)
}

func (d *Directory) add(key string, e record.Endpoint) {
	network := record.Names(record.Endpoints, key, 3)[0]
	added := entry{addresses: e.Addresses}
	for _, label := range e.Names {
		n := name{network, strings.ToLower(label)}
		if slices.Contains(added.names, n) {
			continue
		}
		added.names = append(added.names, n)
		at, _ := slices.BinarySearch(d.users[n], key)
		d.users[n] = slices.Insert(d.users[n], at, key)
	}
	d.endpoints[key] = added
}

// Lookup returns the addresses of a name in a network, in the order of the endpoints' keys, and
// whether there is such a name. Case does not matter.
func (d *Directory) Lookup(network, label string) (addresses []netip.Addr, known bool) {
	for _, key := range d.users[name{network, strings.ToLower(label)}] {
		addresses, known = append(addresses, d.endpoints[key].addresses...), true
	}
	return addresses, known
}
