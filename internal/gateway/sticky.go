package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"fairlead/internal/model/gateway"
)

// cookieOf returns the settings of the cookie that keeps a client's sessions with a service, nil if it has
// none.
func cookieOf(service string, sticky *gateway.Sticky) *gateway.Cookie {
	if sticky == nil || sticky.Cookie == nil {
		return nil
	}
	c := *sticky.Cookie
	c.Name = cmp.Or(c.Name, cookieName(service))
	return &c
}

// cookieHash returns the value of Traefik's cookies for a server or service.
func cookieHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// cookieValues returns the values that name a service of a weighted one. Traefik takes the hash of
// the name as the file has it, which is without the provider if both services have the same one.
// The other values are those of files that have it, and of earlier versions of the gateway.
func cookieValues(weighted, service string) []string {
	_, provider, _ := strings.Cut(weighted, "@")
	written := strings.TrimSuffix(service, "@"+provider)
	return []string{cookieHash(written), cookieHash(service), service, written}
}

// renew replaces a cookie of another form, as Traefik does.
func renew(w http.ResponseWriter, of *gateway.Cookie, has, value string) {
	if has != value {
		http.SetCookie(w, session(of, value))
	}
}

// session returns the cookie with the value.
func session(of *gateway.Cookie, value string) *http.Cookie {
	c := &http.Cookie{Name: of.Name, Value: value, Path: "/", Domain: of.Domain, Secure: of.Secure,
		HttpOnly: of.HTTPOnly, MaxAge: of.MaxAge}
	if of.Path != nil {
		c.Path = *of.Path
	}
	switch of.SameSite {
	case "none":
		c.SameSite = http.SameSiteNoneMode
	case "lax":
		c.SameSite = http.SameSiteLaxMode
	case "strict":
		c.SameSite = http.SameSiteStrictMode
	}
	return c
}
