package wording

import (
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
	gatewaymodel "fairlead/internal/model/gateway"
)

// RouterRows adds routers to rows: PROTOCOL, NAME, ENTRY POINTS, RULE, SERVICE, STATE, REASON.
func RouterRows(rows [][]string, protocol string, all map[string]view.Router) [][]string {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		entries := r.EntryPoints
		if len(entries) == 0 {
			entries = r.Using
		}
		rows = append(rows, []string{protocol, name, OrDash(strings.Join(entries, ",")),
			OrDash(r.Rule), OrDash(r.Service), r.Status, OrDash(strings.Join(r.Errors, "; "))})
	}
	return rows
}

// GatewayServiceRows adds services to rows: PROTOCOL, NAME, TYPE, SERVERS, STATE, REASON.
func GatewayServiceRows(rows [][]string, protocol string, all map[string]view.Service) [][]string {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		var servers []string
		for at, state := range s.ServerStatus {
			text := at + " " + strings.ToLower(state)
			if last, failed := s.LastFailures[at]; failed {
				text += " (" + last.Since(time.Now()) + ")"
			}
			servers = append(servers, text)
		}
		slices.Sort(servers)
		rows = append(rows, []string{protocol, name, OrDash(s.Type),
			OrDash(strings.Join(servers, ", ")), s.Status, OrDash(strings.Join(s.Errors, "; "))})
	}
	return rows
}

// MiddlewareRows adds middlewares to rows: PROTOCOL, NAME, TYPE, USED BY, STATE, REASON.
func MiddlewareRows(rows [][]string, protocol string, all map[string]view.Middleware) [][]string {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		rows = append(rows, []string{protocol, name, OrDash(m.Type),
			OrDash(strings.Join(m.UsedBy, ", ")), m.Status, OrDash(strings.Join(m.Errors, "; "))})
	}
	return rows
}

func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

// CertificateRow returns the cells of a certificate: NAMES, ISSUER, VALID UNTIL, USE, RESOLVER, STATE, NEXT
// ATTEMPT, REASON.
func CertificateRow(c shown.Certificate) []string {
	use := "for these names"
	if c.Default {
		use = "for names that no other has"
	}
	from := gatewaymodel.CertificateState{}
	if c.ACME != nil {
		from = *c.ACME
	}
	return []string{OrDash(strings.Join(c.Names, ",")), OrDash(c.Issuer), timeOrDash(c.NotAfter), use,
		OrDash(from.Resolver), OrDash(from.State), timeOrDash(from.Next), OrDash(from.Reason)}
}
