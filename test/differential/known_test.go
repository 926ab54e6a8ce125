package differential_test

import (
	"maps"
	"slices"
	"strings"
)

// row is a row of the table "What differs" in docs/guide/from-traefik.md.
type row struct {
	// text is how the first cell begins.
	text string
	// shows reports whether the row explains a difference. It is nil if generated requests cannot show
	// the row.
	shows func(d difference) bool
}

// at returns a condition on what differs.
func at(begins ...string) func(difference) bool {
	return func(d difference) bool {
		for _, begin := range begins {
			if strings.HasPrefix(d.Where, begin) {
				return true
			}
		}
		return false
	}
}

// ends returns a condition on the end of the path in /api/rawdata.
func ends(with ...string) func(difference) bool {
	return func(d difference) bool {
		for _, end := range with {
			if strings.HasPrefix(d.Where, "raw ") && strings.HasSuffix(d.Where, end) {
				return true
			}
		}
		return false
	}
}

// isOwn reports whether both gateways answer themselves, with the same status.
func isOwn(d difference) bool {
	byServer := func(r response) bool {
		return slices.ContainsFunc(r.Received, func(at received) bool { return at.At != "auth" })
	}
	a, o := d.both[0], d.both[1]
	same := strings.TrimSpace(a.Body) == strings.TrimSpace(o.Body)
	return a.Status == o.Status && a.Status >= 300 && (!byServer(a) && !byServer(o) || same)
}

// ofWrong reports whether a difference comes from a container of which one label cannot be used.
func ofWrong(d difference) bool {
	for _, c := range d.batch.Containers {
		named := strings.Contains(d.Where, "/"+c.Name+"@docker") || strings.Contains(d.Where, "-"+c.Name+"@docker") ||
			strings.Contains(d.Here, c.Name+"@docker") || d.Request != nil && strings.HasPrefix(d.Request.Name,
			c.Name+".")
		if c.Wrong && named {
			return true
		}
	}
	return false
}

// router returns the router whose host the request has, nil if it is that of a container.
func (d difference) router() obj {
	if d.Request == nil {
		return nil
	}
	number, _, _ := strings.Cut(d.Request.Name, ".")
	router, _ := d.batch.Dynamic["http"].(obj)["routers"].(obj)["r"+number].(obj)
	return router
}

// rule returns the rule of the request's router.
func (d difference) rule() string {
	rule, _ := d.router()["rule"].(string)
	return rule
}

// uses returns a condition on the middlewares of the request's router, or of the labels of the container
// that the router is of.
func uses(kind string) func(difference) bool {
	return func(d difference) bool {
		if c := d.container(); c != nil {
			below := "traefik.http.middlewares.m-" + c.Name + "." + strings.ToLower(kind)
			return slices.ContainsFunc(slices.Collect(maps.Keys(c.Labels)),
				func(key string) bool { return key == below || strings.HasPrefix(key, below+".") })
		}
		http := d.batch.Dynamic["http"].(obj)
		chosen, _ := d.router()["middlewares"].([]string)
		return slices.ContainsFunc(chosen,
			func(name string) bool { return http["middlewares"].(obj)[name].(obj)[kind] != nil })
	}
}

// setsProto reports whether a middleware of the request's router sets X-Forwarded-Proto.
func (d difference) setsProto() bool {
	middlewares := d.batch.Dynamic["http"].(obj)["middlewares"].(obj)
	chosen, _ := d.router()["middlewares"].([]string)
	return slices.ContainsFunc(chosen, func(name string) bool {
		headers, _ := middlewares[name].(obj)["headers"].(obj)
		set, _ := headers["customRequestHeaders"].(obj)
		return set["X-Forwarded-Proto"] != nil
	})
}

// container returns the container that the request is for, or nil.
func (d difference) container() *container {
	for i, c := range d.batch.Containers {
		if d.Request != nil && strings.HasPrefix(d.Request.Name, c.Name+".") {
			return &d.batch.Containers[i]
		}
	}
	return nil
}

// hasTarget reports whether the target of the request contains a text.
func hasTarget(text string) func(difference) bool {
	return func(d difference) bool { return d.Request != nil && strings.Contains(d.Request.Target, text) }
}

// both returns the conjunction of conditions.
func both(a, b func(difference) bool) func(difference) bool {
	return func(d difference) bool { return a(d) && b(d) }
}

// rows are all rows of the table.
var rows = []row{
	{"One wrong label, or no port", ofWrong},
	{"A label that begins with `Traefik.`", nil},
	{"Two containers that define", nil},
	{"Routers with equal priority", func(d difference) bool {
		return strings.Contains(d.Where, "outers/") && ends("/status")(d) && d.Traefik == "enabled" &&
			d.Here == "warning"
	}},
	{"Labels can name files", nil},
	{"A faulty file keeps", nil},
	{"The TLS store or options", nil},
	{"`routers` and `Routers`", nil},
	{"Containers of different projects", nil},
	{"An object of labels", nil},
	{"A router of a container that is stopping", nil},
	{"These requests are accepted", nil},
	{"`GET *` is routed", nil},
	{"A client of HTTP/2 may reset", nil},
	{"A failure that the client causes", nil},
	{"The latency of `circuitBreaker`", nil},
	{"A request with the header `Upgrade`", nil},
	{"Copies for mirrors", nil},
	{"A full entry point", nil},
	{"Routers that disagree", nil},
	{"A router with TLS options", nil},
	{"A router is served under", nil},
	{"A router with any `tls` key", nil},
	{"Options that do not exist", nil},
	{"A container that is starting", nil},
	{"A container gets requests until", nil},
	{"Without a label, a container on several networks", nil},
	{"After a change of a service", func(d difference) bool {
		return d.both[0].Status == 502 && d.both[1].Status == 503 && at("status", "body", "header ")(d)
	}},
	{"Headers such as", at("auth header X_", "auth header X.", "server header X_", "server header X.")},
	{"A query with semicolons", func(d difference) bool {
		shown := at("server request", "auth header X-Forwarded-Uri", "header Location")(d)
		return hasTarget(";")(d) && (shown || strings.Contains(d.rule(), "Query"))
	}},
	{"A head of a request", nil},
	{"`log.level`", nil},
	{"v3 removed", nil},
	{"A request without `Accept-Encoding`", func(d difference) bool {
		return strings.HasSuffix(d.Where, "header Accept-Encoding") && strings.Contains(d.Traefik, "gzip") &&
			(d.Here == "" || d.Traefik == "gzip "+d.Here)
	}},
	{"A request to the server of `forwardAuth` without", at("auth header User-Agent")},
	{"An answer of the gateway itself", func(d difference) bool {
		return at("body", "header Content-Length", "header Content-Type", "header X-Content-Type-Options")(d) &&
			isOwn(d)
	}},
	{"If no server is up", func(d difference) bool {
		return d.both[0].Status == 503 && d.both[1].Status == 503 && at("header Retry-After", "body",
			"header Content-Length")(d)
	}},
	{"With `sanitizePath=false`, a path with dot segments", func(d difference) bool {
		dots := func(q *request) bool {
			return strings.Contains(q.Target, "/.") || strings.Contains(q.Target,
				"/%2e")
		}
		return d.Batch == "not sanitized" && d.Request != nil && dots(d.Request) && d.both[1].Status == 400
	}},
	{"With `ruleSyntax` v2, `HostRegexp`", func(d difference) bool {
		return d.Request != nil && strings.HasSuffix(d.Request.Host, ".") && strings.Contains(d.rule(), "HostRegexp") &&
			d.Batch == "v2" && d.both[0].Status == 404
	}},
	{"A preflight with", func(d difference) bool {
		return at("header Vary")(d) && d.Request.Method == "OPTIONS" && d.Here == "Origin"
	}},
	{"A path with an encoded character", func(d difference) bool {
		return d.Request != nil && d.both[0].Status == 404 && d.both[1].Status == 400 && hasTarget("%")(d)
	}},
	{"A request for a page of `errors`", both(uses("errors"), at("server header X-Forwarded-For",
		"server header If-", "server header Range"))},
	{"`redirectRegex` sees", func(d difference) bool {
		return uses("redirectRegex")(d) && (hasLine(d.Request.Header, "X-Forwarded-Proto: https") || d.setsProto())
	}},
	{"A response 304", func(d difference) bool { return d.both[0].Status == 304 && at("header Content-Type")(d) }},
	{"`X-Forwarded-User`", at("auth header X-Forwarded-Ssl", "server header X-Forwarded-Ssl")},
	{"`customRequestHeaders` without", func(d difference) bool {
		return at("auth header X-Forwarded-For")(d) && d.Traefik == ", "+d.Here
	}},
	{"`X-Replaced-Path`", at("server header X-Replaced-Path", "auth header X-Replaced-Path")},
	{"`compress` compresses", both(uses("compress"), at("header Vary", "header Content-Encoding",
		"header Content-Length", "header Accept-Ranges", "header Etag"))},
	{"`digestAuth` quotes", both(at("header Www-Authenticate"), func(d difference) bool {
		return strings.ReplaceAll(d.Traefik, `"MD5"`, "MD5") == d.Here
	})},
	{"`mirroring` copies", func(d difference) bool {
		return at("server ")(d) && hasLine(d.Request.Header, "Upgrade:") && d.Traefik == d.Here+d.Here
	}},
	{"`stripPrefix` of", both(hasTarget("%2F"), at("server request", "auth header X-Forwarded-Uri"))},
	{"`Forwarded` of", at("server header Forwarded", "auth header Forwarded")},
	{"`TE: trailers`", at("server header Te", "auth header Te", "auth header Proxy-Connection")},
	{"A request of a router with the default rule", at("server header X-Traefik-Router",
		"auth header X-Traefik-Router")},
	{"Of several UDP routers", func(d difference) bool {
		return strings.HasPrefix(d.Where, "raw /udpRouters/") && ends("/status", "/using")(d)
	}},
	{"`sslRedirect`", nil},
	{"With HTTP, a server with", nil},
	{"A gRPC-web preflight", nil},
	{"Services have `spiffe`", nil},
	{"A stored certificate", nil},
	{"A router at several entry points", nil},
	{"`accessControlAllowOriginList: \"*\"`", func(d difference) bool {
		return at("header Access-Control-Allow-Origin")(d) && d.Here == "*"
	}},
	{"In `/api/rawdata`, objects have no", func(d difference) bool {
		return ends("/name", "/provider", "/type", "/certificates")(d) || at("raw /sources/")(d)
	}},
	{"The API has routers and middlewares", func(d difference) bool {
		return strings.HasPrefix(d.Where, "raw ") && strings.Contains(d.Where, "@internal")
	}},
	{"The API shows hashes", func(d difference) bool {
		return strings.HasPrefix(d.Where, "raw ") && strings.Contains(d.Here, "(hidden)")
	}},
	{"With `api.insecure`", nil},
	{"`api.basePath` may be", nil},
	{"A router that is disabled", func(d difference) bool {
		return strings.HasPrefix(d.Where, "raw /routers/") && strings.HasSuffix(d.Where, "/using")
	}},
	{"The API's reasons", ends("/error")},
	{"In the API, services that no router", func(d difference) bool {
		return strings.Contains(d.Where,
			"/serverStatus/")
	}},
	{"In the API, services have no `lastFailures`", func(d difference) bool {
		return strings.Contains(d.Where, "/lastFailures")
	}},
	{"In the API, a reference", ends("/chain/middlewares", "/serversTransport")},
}

// explained returns the row that explains a difference, nil if there is none.
func explained(d difference) *row {
	for i := range rows {
		if rows[i].shows != nil && rows[i].shows(d) {
			return &rows[i]
		}
	}
	return nil
}
