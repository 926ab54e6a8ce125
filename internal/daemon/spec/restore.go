package spec

import (
	"slices"

	"fairlead/internal/model"
)

// Restored returns the desired state now with all that has the origin as it was before. It undoes a Draft of the
// same origin, and keeps what others have changed since. What the Draft has adopted belongs to its earlier owner again.
func Restored(now, before model.Desired, by model.Origin) model.Desired {
	now.Networks = restored(now.Networks, before.Networks, networkName,
		func(n model.Network) bool { return n.Origin == by })
	now.Attachments = restored(now.Attachments, before.Attachments, attachmentName,
		func(a model.Attachment) bool { return a.Origin == by })
	now.Publishes = restored(now.Publishes, before.Publishes, publishName,
		func(p model.Publish) bool { return p.Origin == by })
	now.Services = restored(now.Services, before.Services, serviceName,
		func(v model.VirtualService) bool { return v.Origin == by })
	if now.Gateway != nil && now.Gateway.Origin == by || before.Gateway != nil && before.Gateway.Origin == by {
		now.Gateway = before.Gateway
	}
	return now
}

func restored[T any](now, before []T, name func(T) string, ours func(T) bool) []T {
	others := slices.DeleteFunc(slices.Clone(now), ours)
	return append(others, slices.DeleteFunc(slices.Clone(before), func(one T) bool {
		return !ours(one) && !slices.ContainsFunc(now, func(o T) bool { return ours(o) && name(o) == name(one) })
	})...)
}
