package soak_test

import (
	"math/rand/v2"

	"fairlead/internal/model"
)

// widest is the number of ports of the widest range.
const widest = 8

// keptPorts contains the host ports of the publishes that stay, by endpoint. churned is the first
// host port of the publishes that change.
var keptPorts = map[string]uint16{"web": 18080, "far": 18081}

const churned = 20000

// item is a publish that changes.
type item struct {
	proto model.Proto
	// port is the first host port.
	port uint16
	// owner is the endpoint; empty while nothing is published.
	owner string
	// width is the number of ports.
	width int
	// ranged is true if usually the width changes, and rarely the owner.
	ranged bool
}

// items returns single ports and ranges, of both protocols.
func items() []*item {
	var all []*item
	for i := range 12 {
		all = append(all, &item{proto: protos[i%2], port: churned + uint16(i)*widest, width: 1, ranged: i%3 == 2,
			owner: names[i%len(names)]})
	}
	return all
}

// change moves, removes, adds, grows or shrinks the item.
func (i *item) change() {
	if i.ranged && rand.IntN(5) > 0 {
		i.width = 1 + rand.IntN(widest)
		return
	}
	i.owner = append([]string{""}, names...)[rand.IntN(len(names)+1)]
}

// publishes returns the publishes that stay and those of the items.
func publishes(items []*item) []model.Publish {
	var all []model.Publish
	for _, endpoint := range []string{"web", "far"} {
		for _, proto := range protos {
			all = append(all, model.Publish{Endpoint: endpoint, Via: model.ViaEBPF, Proto: proto,
				HostPorts: model.Port(keptPorts[endpoint]), Ports: model.Port(kept)})
		}
	}
	for n, i := range items {
		if i.owner == "" {
			continue
		}
		width := uint16(i.width - 1)
		all = append(all, model.Publish{Endpoint: i.owner, Via: model.ViaEBPF, Proto: i.proto, Reset: n%2 == 0,
			HostPorts: model.PortRange{First: i.port, Last: i.port + width},
			Ports:     model.PortRange{First: serving.First, Last: serving.First + width}})
	}
	return all
}
