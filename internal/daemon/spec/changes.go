package spec

import (
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Changes lists the differences between two desired states: networks, attachments,
// publishes, services, parts of the gateway.
func Changes(before, next model.Desired) []api.Change {
	return slices.Concat(
		diff("network", before.Networks, next.Networks, networkName, model.Network.Equal, ownedNetwork),
		diff("attachment", before.Attachments, next.Attachments, attachmentName, model.Attachment.Equal,
			ownedAttachment),
		diff("publish", before.Publishes, next.Publishes, publishName, model.Publish.Equal, ownedPublish),
		diff("service", before.Services, next.Services, serviceName, model.VirtualService.Equal, ownedService),
		diffGateway(before.Gateway, next.Gateway))
}

func networkName(n model.Network) string        { return n.Name }
func attachmentName(a model.Attachment) string  { return a.Name }
func serviceName(v model.VirtualService) string { return v.Name }

// The functions owned… return an object with what the other one has of its owner.

func ownedNetwork(n, by model.Network) model.Network {
	n.Origin = by.Origin
	return n
}

func ownedAttachment(a, by model.Attachment) model.Attachment {
	a.Origin, a.Keep = by.Origin, by.Keep // files keep their attachments
	return a
}

func ownedPublish(p, by model.Publish) model.Publish {
	p.Origin = by.Origin
	return p
}

func ownedService(v, by model.VirtualService) model.VirtualService {
	v.Origin = by.Origin
	return v
}

func ownedGateway(g, by model.Gateway) *model.Gateway {
	g.Origin = by.Origin
	return &g
}

// ownedObject returns an object of the gateway, which only files have.
func ownedObject(o, _ model.GatewayObject) model.GatewayObject { return o }

// diffGateway lists the differences between two gateways, kind by kind. Either may be nil.
func diffGateway(before, next *model.Gateway) (all []api.Change) {
	was, now := before.Objects(), next.Objects()
	seen := map[string]bool{}
	for _, o := range slices.Concat(was, now) {
		if !seen[o.Kind] {
			all = append(all, diff(strings.TrimSpace("gateway "+o.Kind), ofKind(was, o.Kind), ofKind(now, o.Kind),
				func(o model.GatewayObject) string { return o.Name }, model.GatewayObject.Equal, ownedObject)...)
		}
		seen[o.Kind] = true
	}
	return all
}

func ofKind(all []model.GatewayObject, kind string) []model.GatewayObject {
	return slices.DeleteFunc(slices.Clone(all), func(o model.GatewayObject) bool { return o.Kind != kind })
}

// publishName returns the endpoint and the host side of a publish.
func publishName(p model.Publish) string {
	host, _, _ := strings.Cut(p.String(), " -> ")
	return p.Endpoint + " " + host
}

// diff lists the differences between two lists. owned returns an object with what another one has of its
// owner: two objects that differ in no more are one that has been adopted.
func diff[T any](kind string, before, next []T, name func(T) string, equal func(a, b T) bool,
	owned func(v, by T) T) []api.Change {
	var all []api.Change
	old := map[string]T{}
	for _, v := range before {
		old[name(v)] = v
	}
	stays := map[string]bool{}
	for _, v := range next {
		was, known := old[name(v)]
		stays[name(v)] = true
		switch {
		case !known:
			all = append(all, api.Change{Action: api.Created, Kind: kind, Name: name(v)})
		case !equal(was, v) && equal(owned(was, v), v):
			all = append(all, api.Change{Action: api.Adopted, Kind: kind, Name: name(v)})
		case !equal(was, v):
			all = append(all, api.Change{Action: api.Changed, Kind: kind, Name: name(v)})
		}
	}
	for _, v := range before {
		if !stays[name(v)] {
			all = append(all, api.Change{Action: api.Removed, Kind: kind, Name: name(v)})
		}
	}
	return all
}
