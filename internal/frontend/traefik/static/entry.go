package static

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
)

// internalEntryPoint is the one of the gateway's own services.
const internalEntryPoint = "traefik"

// entryPoints sets the entry points and the names of the default ones.
func (b *builder) entryPoints(s *allSettings, out *gateway.Static) {
	all := maps.Clone(s.EntryPoints)
	if len(all) == 0 {
		all = map[string]*entryPointSettings{"http": {Address: ":80"}}
	}
	if _, ok := all[internalEntryPoint]; !ok && needsInternal(out) {
		all[internalEntryPoint] = &entryPointSettings{Address: ":8080"}
	}
	var flagged, tcp []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := b.entryPoint(name, all[name], value(s.Global).NotAppendXForwardedFor)
		out.EntryPoints = append(out.EntryPoints, e)
		if _, _, udp, _ := splitAddress(e.Address); udp || name == internalEntryPoint {
			continue
		}
		if tcp = append(tcp, name); e.AsDefault {
			flagged = append(flagged, name)
		}
	}
	if out.Default = tcp; len(flagged) > 0 {
		out.Default = flagged
	}
	b.checkReferences(out)
}

// needsInternal reports whether one of the gateway's services is at the entry point
// "traefik".
func needsInternal(s *gateway.Static) bool {
	return s.API != nil && s.API.Insecure ||
		s.Ping != nil && !s.Ping.ManualRouting && s.Ping.EntryPoint == internalEntryPoint ||
		s.Metrics != nil && !s.Metrics.ManualRouting && s.Metrics.EntryPoint == internalEntryPoint
}

// checkReferences notes names of entry points that do not exist. As in Traefik, the
// gateway runs without what needs them.
func (b *builder) checkReferences(s *gateway.Static) {
	var names []string
	for _, e := range s.EntryPoints {
		names = append(names, e.Name)
	}
	exists := func(key, name string) bool {
		if !slices.Contains(names, name) {
			b.note(key, "has no effect: there is no entry point %q, only %s", name, strings.Join(names, ", "))
			return false
		}
		return true
	}
	for i, e := range s.EntryPoints {
		if e.Redirect != nil && !strings.HasPrefix(e.Redirect.To, ":") &&
			!exists("entryPoints."+e.Name+".http.redirections.entryPoint.to", e.Redirect.To) {
			s.EntryPoints[i].Redirect = nil
		}
	}
	if s.Ping != nil && !s.Ping.ManualRouting && !exists("ping.entryPoint", s.Ping.EntryPoint) {
		s.Ping = nil
	}
	if s.Metrics != nil && !s.Metrics.ManualRouting && !exists("metrics.prometheus.entryPoint", s.Metrics.EntryPoint) {
		s.Metrics = nil
	}
}

func (b *builder) entryPoint(name string, s *entryPointSettings, notAppend bool) gateway.EntryPoint {
	key := "entryPoints." + name
	address, err := numericAddress(s.Address)
	if err != nil {
		b.mistake(key+".address", "%v", err)
	}
	h, f, p, t := value(s.HTTP), value(s.ForwardedHeaders), value(s.ProxyProtocol), value(s.Transport)
	b.prefixes(key+".forwardedHeaders.trustedIPs", f.TrustedIPs)
	b.prefixes(key+".proxyProtocol.trustedIPs", p.TrustedIPs)
	return gateway.EntryPoint{
		Name: name, Address: address, AsDefault: s.AsDefault,
		Redirect: b.redirect(key, h.Redirections), TLS: h.TLS, Middlewares: h.Middlewares,
		TrustedProxies: f.TrustedIPs, Insecure: f.Insecure, ConnectionHeaders: f.Connection,
		NotAppendXForwardedFor: f.NotAppendXForwardedFor || notAppend,
		ProxyProtocol:          p.TrustedIPs, ProxyProtocolInsecure: p.Insecure,
		Timeouts: timeouts(t), HTTP3: s.HTTP3, Observability: s.Observability,
		MaxRequests: t.KeepAliveMaxRequests, MaxAge: t.KeepAliveMaxTime,
		MaxConnections: t.MaxConnections, MaxConnectionsPerClient: t.MaxConnectionsPerClient,
		SNIStrict:      t.SNIStrict,
		MaxHeaderBytes: cmp.Or(h.MaxHeaderBytes, 1<<20), SanitizePath: h.SanitizePath,
		EncodeQuerySemicolons: h.EncodeQuerySemicolons, EncodedCharacters: encoded(h.EncodedCharacters),
		MaxConcurrentStreams: cmp.Or(value(s.HTTP2).MaxConcurrentStreams, 250),
		UDPTimeout:           or(value(s.UDP).Timeout, 3*time.Second),
	}
}

func timeouts(t transportSettings) gateway.Timeouts {
	r, l := value(t.RespondingTimeouts), value(t.LifeCycle)
	return gateway.Timeouts{Read: r.ReadTimeout, Write: r.WriteTimeout, Idle: r.IdleTimeout, Grace: l.GraceTimeOut,
		AcceptGrace: l.RequestAcceptGraceTimeout}
}

func (b *builder) redirect(key string, r *redirectionSettings) *gateway.Redirection {
	if r == nil {
		return nil
	}
	key += ".http.redirections.entryPoint"
	e := value(r.EntryPoint)
	if port, ok := strings.CutPrefix(e.To, ":"); e.To == "" || ok && !isPort(port) {
		b.note(key+".to", "has no effect: the value %q is neither an entry point nor a port such as :443", e.To)
		return nil
	}
	return &gateway.Redirection{To: e.To, Scheme: cmp.Or(e.Scheme, "https"), Permanent: or(e.Permanent, true),
		Priority: e.Priority}
}

func encoded(s *encodedSettings) *gateway.EncodedCharacters {
	if s == nil {
		return nil
	}
	return &gateway.EncodedCharacters{
		AllowEncodedSlash: or(s.AllowEncodedSlash, true), AllowEncodedBackSlash: or(s.AllowEncodedBackSlash, true),
		AllowEncodedNullCharacter: or(s.AllowEncodedNullCharacter, true),
		AllowEncodedSemicolon:     or(s.AllowEncodedSemicolon, true),
		AllowEncodedPercent:       or(s.AllowEncodedPercent, true),
		AllowEncodedQuestionMark:  or(s.AllowEncodedQuestionMark, true),
		AllowEncodedHash:          or(s.AllowEncodedHash, true),
	}
}

// prefixes reports texts that are neither addresses nor prefixes.
func (b *builder) prefixes(key string, texts []string) {
	for _, text := range texts {
		_, notPrefix := netip.ParsePrefix(text)
		if _, notAddr := netip.ParseAddr(text); notPrefix != nil && notAddr != nil {
			b.mistake(key, "value %q: want an IP address, or a prefix such as 10.0.0.0/8", text)
		}
	}
}

// numericAddress returns the address with its port as a number. Users also write the name of a
// service, such as :imaps.
func numericAddress(address string) (string, error) {
	host, port, _, err := splitAddress(address)
	if err != nil {
		return "", err
	}
	numeric := net.JoinHostPort(host, port)
	if _, protocol, found := strings.Cut(address, "/"); found {
		numeric += "/" + protocol
	}
	return numeric, nil
}

// splitAddress parses HOST:PORT with an optional /tcp or /udp. It returns the port as a number, also
// if the address has the name of a service (RFC 6335).
func splitAddress(address string) (host, port string, udp bool, err error) {
	if address == "" {
		return "", "", false, errors.New("has no value: set it to a port such as :80, or to ADDRESS:PORT")
	}
	at, protocol, found := strings.Cut(address, "/")
	udp = strings.EqualFold(protocol, "udp")
	host, port, err = net.SplitHostPort(at)
	if err != nil || found && !udp && !strings.EqualFold(protocol, "tcp") {
		return "", "", udp, fmt.Errorf("value %q: want [ADDRESS]:PORT[/tcp|/udp], such as :443 or :53/udp", address)
	}
	number, err := net.LookupPort(cmp.Or(strings.ToLower(protocol), "tcp"), port)
	if err != nil || port == "" {
		return "", "", udp, fmt.Errorf("value %q: %q is neither a port number nor the name of a service: "+
			"want a number such as :443", address, port)
	}
	return host, strconv.Itoa(number), udp, nil
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}
