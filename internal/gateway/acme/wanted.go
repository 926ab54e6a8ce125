package acme

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// mostNames is the largest number of names of a certificate: Let's Encrypt's limit.
const mostNames = 100

// wanted is a certificate that routers ask a resolver for.
type wanted struct {
	resolver string
	// names are in lower case, the main one first.
	names   []string
	routers []string
	// isDefault makes it the certificate for names that no other has.
	isDefault bool
	// problem says why it cannot be obtained before the settings change.
	problem string
}

// mostMissing is how many names without a certificate are shown: the states are part of each
// configuration, and thousands of routers may rely on the default certificate.
const mostMissing = 100

// key identifies the certificate: the order of its names does not matter.
func (w wanted) key() string { return w.resolver + " " + setOf(w.names) }

func setOf(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ",")
}

// wantedBy returns the certificates that the configuration asks for, sorted by key. As in
// Traefik, tls.domains of a router come before the names of its rule, and a name of a rule
// needs no certificate if one from a file, or a wildcard, is valid for it. A certificate
// whose names another one has too is left out.
func wantedBy(config *gateway.Config, static *gateway.Static, given []string, known *rules) []wanted {
	c := collector{static: static, all: map[string]*wanted{}, given: given, known: known}
	defer known.keep()
	for _, name := range slices.Sorted(maps.Keys(config.HTTP.Routers)) {
		c.careful("router "+name, func() { c.httpRouter(name, config.HTTP.Routers[name]) })
	}
	for _, name := range slices.Sorted(maps.Keys(config.TCP.Routers)) {
		c.careful("TCP router "+name, func() { c.tcpRouter(name, config.TCP.Routers[name]) })
	}
	if s := config.TLS.Stores["default"]; s != nil && s.DefaultCertificate == nil && s.DefaultGeneratedCert != nil {
		if g := s.DefaultGeneratedCert; g.Domain != nil && s.Validate() == nil {
			c.add(g.Resolver, g.Domain.Names(), "").isDefault = true
		}
	}
	return append(c.distinct(), c.missing(config.TLS.Stores["default"])...)
}

// careful adds the certificates of one router. If it panics, the router asks for none: the serving process reports what
// is wrong with the router. Certificates are added one by one, each as a whole.
func (c *collector) careful(object string, add func()) { _ = recovery.Object(object, add) }

func (c *collector) httpRouter(name string, r *gateway.Router) {
	for _, at := range c.entries(r.EntryPoints) {
		if t := cmp.Or(r.TLS, at.TLS); t != nil {
			c.router(name, t, c.known.domains(ruleKey{r.Rule, cmp.Or(r.RuleSyntax, c.static.RuleSyntax), false}))
		}
	}
}

func (c *collector) tcpRouter(name string, r *gateway.TCPRouter) {
	if r.TLS == nil || r.TLS.Passthrough {
		return
	}
	c.router(name, &r.TLS.RouterTLS, c.known.domains(ruleKey{r.Rule, cmp.Or(r.RuleSyntax, c.static.RuleSyntax), true}))
}

// Check returns the certificates that cannot be obtained before the settings change, each with
// its routers and the reason. It reads the certificates in files, and no storage.
func Check(config *gateway.Config, static gateway.Static) (all []gateway.CertificateState) {
	for _, w := range wantedBy(config, &static, givenNames(config.TLS.Certificates), &rules{}) {
		if w.problem != "" && w.resolver != "" {
			all = append(all, gateway.CertificateState{Names: w.names, Resolver: w.resolver, Routers: w.routers,
				State: gateway.CertificateFailed, Reason: w.problem})
		}
	}
	return all
}

// collector gathers the certificates of all routers.
type collector struct {
	static *gateway.Static
	all    map[string]*wanted
	// given are the names of certificates from files.
	given []string
	known *rules
	// fromRules are the certificates that only rules ask for, with the router's name.
	fromRules []fromRule
	// without are the routers that ask no resolver.
	without []fromRule
}

type fromRule struct {
	resolver, router string
	names            []string
}

// entries returns the entry points with the names, or the default ones.
func (c *collector) entries(names []string) (all []gateway.EntryPoint) {
	if len(names) == 0 {
		names = c.static.Default
	}
	for _, e := range c.static.EntryPoints {
		if slices.Contains(names, e.Name) {
			all = append(all, e)
		}
	}
	return all
}

// ruleKey is what a rule is parsed from.
type ruleKey struct {
	text, syntax string
	tcp          bool
}

// rules has the names in the rules of the last configuration, so that each is parsed once.
type rules struct{ last, now map[ruleKey][]string }

// domains returns the names of a rule. A rule that cannot be parsed disables its router, so
// it has none.
func (r *rules) domains(key ruleKey) []string {
	names, ok := r.last[key]
	if !ok {
		parse := rule.Read
		if key.tcp {
			parse = rule.ReadTCP
		}
		if parsed, err := parse(key.text, key.syntax); err == nil {
			names = parsed.Domains()
		}
	}
	if r.now == nil {
		r.now = map[ruleKey][]string{}
	}
	r.now[key] = names
	return names
}

// keep forgets the rules that the configuration does not have.
func (r *rules) keep() { r.last, r.now = r.now, nil }

// router adds the certificates of a router.
func (c *collector) router(name string, t *gateway.RouterTLS, names []string) {
	if t.CertResolver == "" {
		c.without = append(c.without, fromRule{"", name, names})
		return
	}
	for _, d := range t.Domains {
		if names := d.Names(); len(names) > 0 {
			c.add(t.CertResolver, names, name)
		}
	}
	if len(t.Domains) == 0 && len(names) > 0 {
		c.fromRules = append(c.fromRules, fromRule{t.CertResolver, name, names})
	}
}

// add adds a certificate, or a router to one that is known.
func (c *collector) add(resolver string, names []string, router string) *wanted {
	w := wanted{resolver: resolver, names: names}
	if c.all[w.key()] == nil {
		w.problem = c.problem(w)
		c.all[w.key()] = &w
	}
	at := c.all[w.key()]
	if router != "" && !slices.Contains(at.routers, router) {
		at.routers = append(at.routers, router)
	}
	return at
}

// problem says why the certificate cannot be obtained.
func (c *collector) problem(w wanted) string {
	r := c.static.Resolvers[w.resolver]
	if r == nil {
		return fmt.Sprintf("resolver %s does not exist: define certificatesResolvers.%s.acme", w.resolver, w.resolver)
	}
	if len(w.names) > mostNames {
		return fmt.Sprintf("%d names: a certificate can have %d: divide them among several tls.domains", len(w.names),
			mostNames)
	}
	for _, name := range w.names {
		if strings.HasPrefix(name, "*.") && r.DNSChallenge == nil {
			return fmt.Sprintf("%s: authorities give a wildcard only for a dnsChallenge: set it for resolver %s", name,
				w.resolver)
		}
		if !isName(name) {
			return fmt.Sprintf("%q is no name of a host: write it in ASCII (punycode), with *. only as the first label", name)
		}
	}
	if r.HTTPChallenge == "" && !r.TLSChallenge && r.DNSChallenge == nil {
		return fmt.Sprintf("resolver %s has no challenge: set httpChallenge, tlsChallenge or dnsChallenge", w.resolver)
	}
	return ""
}

// isName reports whether the authority can be asked for a certificate for the name.
func isName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.TrimPrefix(name, "*.")
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(name) <= 253
}

// covered are the names of given and wanted certificates.
func (c *collector) covered() map[string]bool {
	covered := map[string]bool{}
	for _, name := range c.given {
		covered[name] = true
	}
	for _, w := range c.all {
		for _, name := range w.names {
			covered[name] = true
		}
	}
	return covered
}

// distinct returns the certificates without those that another one makes needless.
func (c *collector) distinct() []wanted {
	covered := c.covered()
	for _, r := range c.fromRules {
		names := slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return covers(covered, name) })
		if len(names) > 0 {
			c.add(r.resolver, names, r.router)
		}
	}
	byName := map[string][]*wanted{}
	sorted := slices.Sorted(maps.Keys(c.all))
	for _, key := range sorted {
		for _, name := range c.all[key].names {
			byName[name] = append(byName[name], c.all[key])
		}
	}
	var kept []*wanted
	for _, key := range sorted {
		w := c.all[key]
		if largest := w.largest(byName[w.names[0]]); largest == w || w.isDefault {
			kept = append(kept, w)
		} else {
			largest.routers = append(largest.routers, w.routers...)
		}
	}
	all := make([]wanted, 0, len(kept))
	for _, w := range kept {
		w.routers = slices.Compact(slices.Sorted(slices.Values(w.routers)))
		all = append(all, *w)
	}
	return all
}

// missing returns the first names of routers with TLS that no certificate is valid for, also not
// the default one, and that no router asks a resolver for. They are only shown.
func (c *collector) missing(defaults *gateway.Store) (all []wanted) {
	if len(c.without) == 0 {
		return nil
	}
	covered := c.covered()
	if defaults != nil && defaults.DefaultCertificate != nil {
		for _, name := range givenNames([]gateway.Certificate{*defaults.DefaultCertificate}) {
			covered[name] = true
		}
	}
	for _, r := range c.without {
		for _, name := range r.names {
			if covers(covered, name) {
				continue
			}
			if len(all) == mostMissing {
				return all
			}
			covered[name] = true // once
			all = append(all, wanted{names: []string{name}, routers: []string{r.router}, problem: "router " + r.router +
				" has no tls.certResolver: set it, or add a certificate with this name to tls.certificates"})
		}
	}
	return all
}

// largest returns the certificate with the most names that include those of this one.
func (w *wanted) largest(all []*wanted) *wanted {
	for _, other := range all {
		if other.includes(w) {
			return other.largest(all)
		}
	}
	return w
}

// includes reports whether the certificate has all names of the other one, and more.
func (w *wanted) includes(other *wanted) bool {
	return w.resolver == other.resolver && w.problem == "" && len(w.names) > len(other.names) &&
		!slices.ContainsFunc(other.names, func(name string) bool { return !slices.Contains(w.names, name) })
}

// covers reports whether the names have the name, or a wildcard that it matches.
func covers(names map[string]bool, name string) bool {
	_, parent, ok := strings.Cut(name, ".")
	return names[name] || ok && names["*."+parent]
}

// givenNames returns the names of the certificates that providers give.
func givenNames(certificates []gateway.Certificate) (names []string) {
	for _, c := range certificates {
		text := []byte(c.CertFile)
		if !strings.Contains(c.CertFile, "-----BEGIN") {
			text, _ = os.ReadFile(c.CertFile) // the gateway reports the error
		}
		names = append(names, namesOfPEM(text)...)
	}
	return names
}

// namesOfPEM returns the names of the first certificate, if it is valid for now.
func namesOfPEM(text []byte) []string {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Now().After(leaf.NotAfter) {
		return nil
	}
	return leaf.DNSNames
}
