package build

import (
	"maps"
	"slices"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// New returns the objects of an empty configuration.
func New(s Settings) (*Objects, error) {
	own, err := tlsconfig.SelfSigned()
	if err != nil {
		return nil, err
	}
	o := &Objects{Settings: s, own: own, kept: newKept(), streams: stream.NewUse()}
	o.Apply(&gateway.Config{}, nil)
	if s.Observer.Metrics.HasServices() {
		s.Observer.Metrics.Registry.MustRegister(serversUp{o})
	}
	return o, nil
}

// Apply replaces the configuration. known are the objects whose status is known
// already, such as routers with faulty labels. It returns the status of all objects.
// Objects that did not change stay as they are, with their state; the caller must not
// change the configuration or a part of it afterwards.
func (o *Objects) Apply(config *gateway.Config, known []status.Status) []status.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, b := o.build(config, known)
	metrics := o.Observer.Metrics
	metrics.Configure(config, namesOfKind(b.changed, "router"), namesOfKind(b.changed, "service"))
	o.Current.Store(next)
	for _, name := range namesOfKind(b.changed, "service") {
		o.progress.Add(1)
		o.Services.Follow(name, b.stateOf(name))
	}
	for _, dropped := range b.dropped {
		o.Services.Release(dropped.state)
	}
	o.Services.Inherited()
	b.streamUse.Start(o.streams)
	o.streams = b.streamUse
	b.datagramUse.Start(o.datagrams)
	o.datagrams = b.datagramUse
	metrics.Configured(slices.Collect(maps.Values(next.TLS.Certificates)))
	return next.Statuses
}

// Check replaces the configuration by one that serves nothing: no server is checked, and no connection to one is kept.
func (o *Objects) Check(config *gateway.Config, known []status.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, _ := o.build(config, known)
	o.Services.Close()
	o.Current.Store(next)
}

// build makes a snapshot of the configuration. Faulty objects are left out; their
// status says why.
func (o *Objects) build(config *gateway.Config, known []status.Status) (*snapshot.Snapshot, *builder) {
	known = slices.Concat(known, certificateProblems(config))
	changed := o.kept.changes(config, known)
	b := &builder{Objects: o, config: config, status: &o.kept.statuses, changed: changed, known: known,
		old: map[string]*builtRouter{}, dropped: map[string]*builtService{}, building: map[string]bool{},
		now: new(parts), tables: tableChanges{}, rules: map[string]*rule.Rule{}}
	others := b.status.Begin(changed)
	for _, s := range known {
		if !status.Lasts(s.Kind) || changed[status.Object{Kind: s.Kind, Name: s.Name}] {
			b.status.Add(s)
		}
	}
	if o.Current.Load() == nil {
		b.addInternal()
		b.addRedirections()
	}
	same := b.keepTLS(others)
	if !same {
		b.addTLS()
	}
	b.decideTLS(same)
	b.addChallenges()
	b.drop()
	b.addChanged()
	b.addStreams()
	o.kept.config, o.kept.known = *config, known
	return b.finish(), b
}

// addChanged builds the changed objects that are in the configuration.
func (b *builder) addChanged() {
	for _, name := range slices.Sorted(maps.Keys(b.config.HTTP.ServersTransports)) {
		b.status.Of("transport", name)
	}
	for _, name := range namesOfKind(b.changed, "service") {
		b.service(name)
	}
	for _, name := range namesOfKind(b.changed, "middleware") {
		if value := b.config.HTTP.Middlewares[name]; value != nil {
			b.status.Of("middleware", name)
			for _, note := range value.Unused() {
				b.status.Warn("middleware", name, note)
			}
		}
	}
	for _, name := range namesOfKind(b.changed, "router") {
		if value := b.config.HTTP.Routers[name]; value != nil {
			b.addRouter(name, value)
		}
	}
}

func (b *builder) finish() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Entries: map[string]*snapshot.Routes{}, TLS: b.tls, Statuses: b.status.Sorted(),
		Config: b.config, Streams: b.streams, Datagrams: b.datagrams}
	for _, e := range b.Static.EntryPoints {
		before := &snapshot.Routes{}
		if last := b.Current.Load(); last != nil {
			before = last.Entries[e.Name]
		}
		s.Entries[e.Name] = &snapshot.Routes{Plain: b.tables.apply(before.Plain, tableKey{e.Name, false}),
			TLS: b.tables.apply(before.TLS, tableKey{e.Name, true})}
	}
	return s
}
