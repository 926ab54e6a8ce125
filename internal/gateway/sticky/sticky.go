// Package sticky names the servers and services of clients' sessions in cookies, as Traefik does.
//
// It does not choose a server: load balancers compare the cookie of a request with the values.
package sticky

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"

	"fairlead/internal/model/gateway"
)

// Cookie returns the settings of the cookie that keeps a client's sessions with a service, nil if it has
// none.
func Cookie(service string, value *gateway.Sticky) *gateway.Cookie {
	if value == nil || value.Cookie == nil {
		return nil
	}
	c := *value.Cookie
	c.Name = cmp.Or(c.Name, cookieName(service))
	return &c
}

// cookieName returns the default name of a service's cookie. It does not depend on whether containers of
// other owners define the service, too.
func cookieName(service string) string {
	sum := sha1.Sum([]byte("_TRAEFIK_BACKEND_" + gateway.WithoutOwner(service)))
	return "_" + hex.EncodeToString(sum[:])[:5]
}

// ServerValues returns the values that name a server with the URL: Traefik's forms of different versions. Responses have
// the first one.
func ServerValues(url string) []string { return []string{hash(url), url, fnvOf(url)} }

func fnvOf(text string) string {
	h := fnv.New64a()
	h.Write([]byte(text))
	return strconv.FormatUint(h.Sum64(), 16)
}

// hash returns the value of Traefik's cookies for a server or service.
func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// ServiceValues returns the values that name a service of a weighted one. Responses have the first one. Traefik takes
// the hash of the name as the file has it, which is without the provider if both services have the same one. The other
// values are those of files that have it, and of earlier versions of the gateway.
func ServiceValues(weighted, service string) []string {
	_, provider, _ := strings.Cut(weighted, "@")
	written := strings.TrimSuffix(service, "@"+provider)
	return []string{hash(written), hash(service), service, written}
}

// Renew replaces a cookie of another form, as Traefik does.
func Renew(w http.ResponseWriter, of *gateway.Cookie, has, value string) {
	if has != value {
		Set(w, of, value)
	}
}

// Set adds the cookie with the value to a response.
func Set(w http.ResponseWriter, of *gateway.Cookie, value string) {
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
	http.SetCookie(w, c)
}
