package build

import (
	"crypto/tls"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// challengePriority is above redirections: the authority asks without TLS.
const challengePriority = math.MaxInt

// addChallenges makes all entry points answer the challenges of the configuration. Requests
// for other tokens take the routers, because a server can obtain certificates of its own.
func (b *builder) addChallenges() {
	last := b.kept.config.ACME
	if !maps.Equal(last.Tokens, b.config.ACME.Tokens) {
		b.tables.remove(b.kept.challenges)
		b.kept.challenges = nil
		for _, token := range slices.Sorted(maps.Keys(b.config.ACME.Tokens)) {
			b.addToken(token, b.config.ACME.Tokens[token])
		}
		b.tables.add(b.kept.challenges)
	}
	b.tls.Challenges = map[string]*tls.Config{}
	for name, value := range b.config.ACME.Challenges {
		pair, err := tlsconfig.KeyPair(value)
		if err != nil {
			b.status.Disable("certificate", name, "challenge: "+err.Error())
			continue
		}
		b.tls.Challenges[name] = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
			NextProtos: []string{tlsconfig.ChallengeProtocol}}
	}
}

// addToken places a router that answers a token with its key authorization (RFC 8555, 8.3).
func (b *builder) addToken(token, answer string) {
	const router = "acme-http@internal"
	parsed, err := rule.Parse("Path(`/.well-known/acme-challenge/"+token+"`)", "v3")
	if err != nil {
		b.status.Disable("certificate", "challenge", err.Error())
		return
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte(answer)) // the client may be gone
	})
	for _, e := range b.Static.EntryPoints {
		for _, secure := range []bool{false, true} {
			b.kept.challenges = append(b.kept.challenges, placed{e.Name, secure, &route.Router{Name: router,
				Service: router, Rule: parsed, Priority: challengePriority, Handler: h}})
		}
	}
}

// certificateProblems returns what routers' certificates lack, for the states of the routers.
func certificateProblems(config *gateway.Config) (known []status.Status) {
	for _, c := range config.ACME.Certificates {
		if c.Reason == "" || c.State == gateway.CertificateMissing || c.State == gateway.CertificateObtaining {
			continue // clients may be content with the default certificate, or get one in a moment
		}
		reason := "certificate for " + strings.Join(c.Names, ", ") + ": " + c.Reason
		add := func(kind, name string) {
			known = append(known, status.Status{Kind: kind, Name: name, State: status.Warning,
				Reasons: []string{reason}})
		}
		for _, name := range c.Routers {
			if config.HTTP.Routers[name] != nil {
				add("router", name)
			}
			if config.TCP.Routers[name] != nil {
				add(stream.RouterKind, name)
			}
		}
	}
	return known
}
