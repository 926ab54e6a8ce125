package access

import (
	"crypto/rand"
	"net/http"
	"sync/atomic"
)

// OneTime lets in the browser that opens a URL first.
type OneTime struct {
	token string
	used  atomic.Bool
	*sessions
}

// NewOneTime returns a new token and its check.
func NewOneTime() *OneTime { return &OneTime{token: rand.Text(), sessions: newSessions("", false)} }

// Query returns the query of the URL to open: ?token=…
func (o *OneTime) Query() string { return "?token=" + o.token }

// Guard lets in requests with the session, and gives the session to the first one with the token.
func (o *OneTime) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one, ok := o.of(r); ok {
			h.ServeHTTP(w, with(r, one.who))
			return
		}
		noStore(w)
		given := r.URL.Query().Get("token")
		if r.Method == http.MethodGet && given != "" && same(given, o.token) && o.used.CompareAndSwap(false, true) {
			o.begin(w, "the user of the one-time token", given)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		http.Error(w,
			"This address needs the one-time token that `fairlead dashboard` has printed. The token is valid "+
				"once: start the command again for another browser.", http.StatusForbidden)
	})
}

// noStore adds the headers of answers that must not be kept or shown in another site.
func noStore(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
}
