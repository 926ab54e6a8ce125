package dashboard

import (
	"net/http"
	"net/url"
)

// policy lets a page load its own style, script and images, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guarded adds the headers that protect a reader, and refuses what another site sends with the reader's browser.
func guarded(h http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header()
		set.Set("Content-Security-Policy", policy)
		set.Set("X-Content-Type-Options", "nosniff")
		// With no-referrer, browsers send `Origin: null` with the page's own forms.
		set.Set("Referrer-Policy", "same-origin")
		set.Set("Cross-Origin-Opener-Policy", "same-origin")
		set.Set("Cross-Origin-Resource-Policy", "same-origin")
		set.Set("Cache-Control", "no-store")
		if err := cross.Check(r); err != nil || foreign(r) {
			http.Error(w, "Another site has sent this request: it is refused.", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// foreign reports whether another site has caused a request. A link on another site to a page is allowed: it only
// shows the page.
func foreign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err != nil || u.Host != r.Host
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}
