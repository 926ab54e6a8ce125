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
		diff("network", before.Networks, next.Networks, func(n model.Network) string { return n.Name },
			model.Network.Equal),
		diff("attachment", before.Attachments, next.Attachments, func(a model.Attachment) string { return a.Name },
			model.Attachment.Equal),
		diff("publish", before.Publishes, next.Publishes, publishName, model.Publish.Equal),
		diff("service", before.Services, next.Services, func(v model.VirtualService) string { return v.Name },
			model.VirtualService.Equal),
		diffGateway(before.Gateway, next.Gateway))
}

// diffGateway lists the differences between two gateways, kind by kind. Either may be nil.
func diffGateway(before, next *model.Gateway) (all []api.Change) {
	was, now := before.Objects(), next.Objects()
	seen := map[string]bool{}
	for _, o := range slices.Concat(was, now) {
		if !seen[o.Kind] {
			all = append(all, diff(strings.TrimSpace("gateway "+o.Kind), ofKind(was, o.Kind), ofKind(now, o.Kind),
				func(o model.GatewayObject) string { return o.Name }, model.GatewayObject.Equal)...)
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

func diff[T any](kind string, before, next []T, name func(T) string, equal func(a, b T) bool) []api.Change {
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
