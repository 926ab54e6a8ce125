package build

import (
	"reflect"
	"slices"

	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// decideTLS decides which TLS options each host has, and which routers are disabled because theirs cannot be
// applied. Routers whose verdict differs from the last one are built again.
func (b *builder) decideTLS(sameOptions bool) {
	differs := !sameOptions
	for _, name := range namesOfKind(b.changed, "router") {
		_, had := b.kept.tls[name]
		delete(b.kept.tls, name)
		var uses []hosttls.Use
		err := recovery.Object("router "+name, func() { uses = b.tlsUses(name, b.config.HTTP.Routers[name]) })
		if err != nil { // a disabled router is not built
			b.status.Disable("router", name, err.Error())
		}
		if len(uses) > 0 {
			b.kept.tls[name] = uses
		}
		differs = differs || had || len(uses) > 0
	}
	if !differs {
		return // b.tls is that of the last configuration
	}
	last := b.kept.verdicts
	unusable := func(options string) string {
		return status.Unusable(b.status, "tls options", options, b.config.TLS.Options)
	}
	b.tls.Hosts, b.kept.verdicts = hosttls.Decide(b.tls.Options, b.Static.EntryPoints, b.kept.tls, unusable)
	for _, verdicts := range []map[string]hosttls.Verdict{last, b.kept.verdicts} {
		for name := range verdicts {
			if !reflect.DeepEqual(last[name], b.kept.verdicts[name]) {
				b.buildAgain(status.Object{Kind: "router", Name: name})
			}
		}
	}
}

// allows records the verdict about a router, and reports whether it may serve.
func (b *builder) allows(router string) bool {
	v := b.kept.verdicts[router]
	for _, reason := range v.Closed {
		b.status.Disable("router", router, reason)
	}
	for _, note := range v.Notes {
		b.status.Warn("router", router, note)
	}
	return len(v.Closed) == 0
}

// buildAgain adds an object that has not changed itself.
func (b *builder) buildAgain(o status.Object) {
	if b.changed[o] {
		return
	}
	b.changed[o] = true
	b.status.Forget(o)
	for _, s := range b.known {
		if (status.Object{Kind: s.Kind, Name: s.Name}) == o {
			b.status.Add(s)
		}
	}
}

// tlsUses returns what a router wants of connections. A router that cannot be used wants nothing.
func (b *builder) tlsUses(name string, value *gateway.Router) (uses []hosttls.Use) {
	if value == nil || b.status.Disabled("router", name) {
		return nil
	}
	parsed, err := b.parse(name, value)
	if err != nil {
		return nil
	}
	for _, at := range b.entriesOf(value) {
		i := slices.IndexFunc(b.Static.EntryPoints, func(e gateway.EntryPoint) bool { return e.Name == at })
		if i < 0 {
			continue
		}
		if options := hosttls.At(b.Static.EntryPoints[i], value); options != "" {
			uses = append(uses, hosttls.NewUse(at, options, parsed))
		}
	}
	return uses
}
