package static

import (
	"reflect"

	"fairlead/internal/model/gateway"
)

// Settings returns the settings from which Declared makes these values, as a pointer to a
// struct whose fields have the names of keys.
func Settings(s gateway.Static) any {
	out := &allSettings{Ping: s.Ping, EntryPoints: map[string]*entryPointSettings{}}
	if s.API != nil {
		out.API = &apiSettings{Insecure: s.API.Insecure, Dashboard: &s.API.Dashboard, BasePath: s.API.BasePath}
	}
	if s.Metrics != nil {
		out.Metrics = &metricsSettings{Prometheus: s.Metrics}
	}
	if a := s.AccessLog; a != nil {
		out.AccessLog = &accessLogSettings{FilePath: a.FilePath, Format: a.Format, BufferingSize: a.BufferingSize,
			AddInternals: a.AddInternals, Fields: a.Fields, Filters: nonzero(filterSettings{a.StatusCodes,
				a.RetryAttempts, a.MinDuration})}
	}
	if s.RuleSyntax != "" {
		out.Core = &coreSettings{s.RuleSyntax}
	}
	out.Providers = nonzero(s.Providers)
	out.ServersTransport, out.TCPServersTransport = nonzero(s.Transport), nonzero(s.TCPTransport)
	for _, e := range s.EntryPoints {
		if e.Name != internalEntryPoint || e.Address != ":8080" || !needsInternal(&s) {
			out.EntryPoints[e.Name] = entryPointOf(e)
		}
	}
	for name, r := range s.Resolvers {
		if out.CertificatesResolvers == nil {
			out.CertificatesResolvers = map[string]*resolverSettings{}
		}
		out.CertificatesResolvers[name] = &resolverSettings{ACME: acmeOf(r)}
	}
	return out
}

func entryPointOf(e gateway.EntryPoint) *entryPointSettings {
	s := &entryPointSettings{Address: e.Address, AsDefault: e.AsDefault, HTTP3: e.HTTP3,
		Observability: e.Observability, HTTP2: nonzero(http2Settings{e.MaxConcurrentStreams}),
		ForwardedHeaders: nonzero(forwardedHeaderSettings{e.Insecure, e.TrustedProxies, e.ConnectionHeaders,
			e.NotAppendXForwardedFor}),
		ProxyProtocol: nonzero(trustSettings{e.ProxyProtocolInsecure, e.ProxyProtocol}),
		UDP:           &udpSettings{&e.UDPTimeout}}
	h := httpSettings{Middlewares: e.Middlewares, TLS: e.TLS, EncodeQuerySemicolons: e.EncodeQuerySemicolons,
		MaxHeaderBytes: e.MaxHeaderBytes, SanitizePath: e.SanitizePath}
	if r := e.Redirect; r != nil {
		h.Redirections = &redirectionSettings{&redirectSettings{r.To, r.Scheme, &r.Permanent, r.Priority}}
	}
	if c := e.EncodedCharacters; c != nil {
		h.EncodedCharacters = &encodedSettings{&c.AllowEncodedSlash, &c.AllowEncodedBackSlash,
			&c.AllowEncodedNullCharacter, &c.AllowEncodedSemicolon, &c.AllowEncodedPercent,
			&c.AllowEncodedQuestionMark, &c.AllowEncodedHash}
	}
	t := e.Timeouts
	s.HTTP = nonzero(h)
	s.Transport = nonzero(transportSettings{LifeCycle: nonzero(lifeCycleSettings{t.AcceptGrace, t.Grace}),
		RespondingTimeouts:   nonzero(timeoutSettings{t.Read, t.Write, t.Idle}),
		KeepAliveMaxRequests: e.MaxRequests, KeepAliveMaxTime: e.MaxAge,
		MaxConnections: e.MaxConnections, MaxConnectionsPerClient: e.MaxConnectionsPerClient,
		SNIStrict: e.SNIStrict})
	return s
}

func acmeOf(r *gateway.Resolver) *acmeSettings {
	a := &acmeSettings{Email: r.Email, CAServer: r.CAServer, Storage: r.Storage, KeyType: r.KeyType,
		CACertificates: r.CACertificates, CAServerName: r.CAServerName, CASystemCertPool: r.CASystemCertPool,
		EAB: r.EAB, PreferredChain: r.PreferredChain, Profile: r.Profile}
	if r.HTTPChallenge != "" {
		a.HTTPChallenge = &httpChallengeSettings{r.HTTPChallenge}
	}
	if r.TLSChallenge {
		a.TLSChallenge = &struct{}{}
	}
	if d := r.DNSChallenge; d != nil {
		a.DNSChallenge = &dnsChallengeSettings{Provider: d.Provider, Resolvers: d.Resolvers,
			DelayBeforeCheck: d.DelayBeforeCheck, DisablePropagationCheck: d.DisableChecks}
	}
	return a
}

// nonzero returns a pointer to a value, and nil if it is zero.
func nonzero[T any](v T) *T {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}
