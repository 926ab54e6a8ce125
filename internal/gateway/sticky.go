package gateway

import (
	"cmp"
	"net/http"

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
