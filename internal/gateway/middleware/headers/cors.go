package headers

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/expression"
	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// cors has the headers that let pages of other origins use responses (the Fetch
// standard, section 3.3).
type cors struct {
	*gateway.Headers
	origins []*regexp.Regexp
}

// newCORS returns nil if no option of CORS is set.
func newCORS(v *gateway.Headers) (*cors, error) {
	lists := [][]string{v.AccessControlAllowHeaders, v.AccessControlAllowMethods, v.AccessControlAllowOriginList,
		v.AccessControlAllowOriginListRegex, v.AccessControlExposeHeaders}
	set := slices.ContainsFunc(lists, func(list []string) bool { return len(list) > 0 })
	if !set && !v.AccessControlAllowCredentials && v.AccessControlMaxAge == 0 && !v.AddVaryHeader {
		return nil, nil
	}
	c := &cors{Headers: v}
	for _, list := range lists {
		for _, value := range list {
			if err := base.CheckHeader("Access-Control-Allow-Headers", value); err != nil {
				return nil, err
			}
		}
	}
	for _, text := range v.AccessControlAllowOriginListRegex {
		origin, err := expression.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("read accessControlAllowOriginListRegex: %w", err)
		}
		c.origins = append(c.origins, origin)
	}
	return c, nil
}

// preflight answers a request that asks whether a page may send another one. It returns
// false for other requests.
func (c *cors) preflight(w http.ResponseWriter, r *http.Request) bool {
	method, origin := r.Header.Get("Access-Control-Request-Method"), r.Header.Get("Origin")
	if r.Method != http.MethodOptions || method == "" || origin == "" {
		return false
	}
	h := w.Header()
	c.apply(h, origin)
	c.list(h, "Access-Control-Allow-Headers", c.AccessControlAllowHeaders,
		r.Header.Get("Access-Control-Request-Headers"))
	c.list(h, "Access-Control-Allow-Methods", c.AccessControlAllowMethods, method)
	if c.AccessControlMaxAge != 0 {
		h.Set("Access-Control-Max-Age", strconv.FormatInt(c.AccessControlMaxAge, 10))
	}
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return true
}

// list sets a header to a list. Browsers take "*" literally in requests with
// credentials: what was asked for replaces it.
func (c *cors) list(h http.Header, name string, values []string, asked string) {
	if slices.Contains(values, "*") && c.AccessControlAllowCredentials {
		values = []string{asked}
	}
	if text := strings.Join(values, ","); text != "" {
		h.Set(name, text)
	}
}

// apply sets the headers of a response to a page of origin.
func (c *cors) apply(h http.Header, origin string) {
	if allowed := c.match(origin); allowed != "" {
		h.Set("Access-Control-Allow-Origin", allowed)
	}
	if c.AccessControlAllowCredentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	c.list(h, "Access-Control-Expose-Headers", c.AccessControlExposeHeaders, "")
	if c.AddVaryHeader {
		base.AddVary(h, "Origin")
	}
}

// match returns the allowed origin, or nothing. The origin "*" stays "*" also with credentials:
// browsers refuse that, so that only origins that the user has named get answers to requests
// with credentials (the Fetch standard, section 3.3.5). Traefik 3.7 reflects each origin.
func (c *cors) match(origin string) string {
	for _, allowed := range c.AccessControlAllowOriginList {
		switch {
		case allowed == origin:
			return origin
		case allowed == "*":
			return "*"
		}
	}
	matches := func(e *regexp.Regexp) bool { return e.MatchString(origin) }
	if origin != "" && slices.ContainsFunc(c.origins, matches) {
		return origin
	}
	return ""
}
