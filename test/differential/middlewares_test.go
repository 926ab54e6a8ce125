package differential_test

// obj is a part of a dynamic configuration.
type obj = map[string]any

// basicUsers are a user with each kind of hash. The password of all is "test".
var basicUsers = []string{"apr:$apr1$H6uskkkW$IgXLP6ewTrSuBkTrqE8wj/", "sha:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M="}

// cors are options for pages of other origins.
var cors = []obj{
	{"accessControlAllowOriginList": []string{"https://a.test"}, "accessControlAllowMethods": []string{"GET", "PUT"}},
	{"accessControlAllowOriginList": []string{"*"}, "accessControlAllowHeaders": []string{"X-A", "X-B"},
		"accessControlMaxAge": 100, "addVaryHeader": true},
	{"accessControlAllowOriginList": []string{"*"}, "accessControlAllowCredentials": true,
		"accessControlAllowHeaders": []string{"*"}, "accessControlAllowMethods": []string{"*"}},
	{"accessControlAllowOriginListRegex": []string{`https://.*\.test`}, "accessControlAllowCredentials": true,
		"accessControlExposeHeaders": []string{"X-Out"}, "addVaryHeader": true},
}

// security are options that add headers of responses or check requests.
var security = []obj{
	{"frameDeny": true, "contentTypeNosniff": true, "browserXssFilter": true},
	{"stsSeconds": 100, "stsIncludeSubdomains": true, "stsPreload": true, "forceSTSHeader": true},
	{"stsSeconds": 100, "referrerPolicy": "no-referrer", "permissionsPolicy": "camera=()",
		"contentSecurityPolicy": "a"},
	{"allowedHosts": []string{"a.test"}, "hostsProxyHeaders": []string{"X-Forwarded-Host"}},
	{"allowedHosts": []string{"a.test"}, "isDevelopment": true, "customFrameOptionsValue": "SAMEORIGIN"},
	{"sslProxyHeaders": obj{"X-Forwarded-Proto": "https"}, "stsSeconds": 5},
	{"contentSecurityPolicyReportOnly": "b", "customBrowserXSSValue": "0", "publicKey": "k"},
}

// custom are options that set headers.
var custom = []obj{
	{"customRequestHeaders": obj{"X-In": "1", "X-Gone": "", "User-Agent": "set"}},
	{"customRequestHeaders": obj{"Host": "other.test"}},
	{"customRequestHeaders": obj{"X-Forwarded-For": ""}},
	{"customRequestHeaders": obj{"X-Forwarded-Proto": "https", "authorization": "Basic abc"}},
	{"customResponseHeaders": obj{"X-Out": "1", "Server": "", "Content-Type": "text/html", "X-Powered-By": ""}},
}

// paths are middlewares that change the path.
var paths = []obj{
	{"addPrefix": obj{"prefix": "/foo"}}, {"addPrefix": obj{"prefix": "/foo/"}}, {"addPrefix": obj{"prefix": "foo"}},
	{"stripPrefix": obj{"prefixes": []string{"/foo"}}}, {"stripPrefix": obj{"prefixes": []string{"/foo/", "/a"}}},
	{"stripPrefix": obj{"prefixes": []string{"/"}}}, {"stripPrefix": obj{"prefixes": []string{"/foo/bar"}}},
	{"stripPrefixRegex": obj{"regex": []string{"/foo/[a-z]+"}}},
	{"stripPrefixRegex": obj{"regex": []string{"^/[a-z]+/"}}},
	{"replacePath": obj{"path": "/new"}}, {"replacePath": obj{"path": "/new%20path"}},
	{"replacePathRegex": obj{"regex": "^/foo/(.*)", "replacement": "/bar/$1"}},
	{"replacePathRegex": obj{"regex": "^/([a-z]+)(.*)", "replacement": "/${1}x$2"}},
	{"replacePathRegex": obj{"regex": "bar", "replacement": "$3"}},
}

// redirections are middlewares that redirect.
var redirections = []obj{
	{"redirectScheme": obj{"scheme": "https"}}, {"redirectScheme": obj{"scheme": "https", "port": "8443",
		"permanent": true}},
	{"redirectScheme": obj{"scheme": "https", "port": "443", "permanent": true}},
	{"redirectScheme": obj{"scheme": "http"}},
	{"redirectRegex": obj{"regex": "^http://([^/]+)/foo/(.*)", "replacement": "https://$1/$2", "permanent": true}},
	{"redirectRegex": obj{"regex": "^http://[^/]+/bar", "replacement": "https://$1"}},
	{"redirectRegex": obj{"regex": "^https?://(.*)", "replacement": "http://${1}"}},
}

// access are middlewares that decide who may send requests.
var access = []obj{
	{"basicAuth": obj{"users": basicUsers}},
	{"basicAuth": obj{"users": basicUsers, "realm": "shop", "removeHeader": true, "headerField": "X-User"}},
	{"digestAuth": obj{"users": []string{"test:traefik:a2688e031edb4be6a3797f3882655c05"}}},
	{"ipAllowList": obj{"sourceRange": []string{"127.0.0.1/32"}}},
	{"ipAllowList": obj{"sourceRange": []string{"10.0.0.0/8"}}},
	{"ipAllowList": obj{"sourceRange": []string{"192.0.2.0/24"}, "ipStrategy": obj{"depth": 1}}},
	{"ipAllowList": obj{"sourceRange": []string{"192.0.2.7"}, "ipStrategy": obj{"excludedIPs": []string{"127.0.0.1"}},
		"rejectStatusCode": 404}},
	{"ipWhiteList": obj{"sourceRange": []string{"127.0.0.0/8", "::1"}}},
	{"rateLimit": obj{"average": 1, "period": "1h"}}, {"rateLimit": obj{"average": 0}},
	{"rateLimit": obj{"average": 1, "burst": 2, "period": "1h",
		"sourceCriterion": obj{"requestHeaderName": "X-Key"}}},
	{"rateLimit": obj{"average": 1, "period": "1h", "sourceCriterion": obj{"requestHost": true}}},
	{"inFlightReq": obj{"amount": 10}}, {"inFlightReq": obj{"amount": 10,
		"sourceCriterion": obj{"requestHost": true}}},
	{"encodedCharacters": obj{"allowEncodedSlash": true}},
}

// forwardAuths are options of forwardAuth besides the address.
var forwardAuths = []obj{
	{"address": "http://127.0.0.1:9100/auth/ok", "authResponseHeaders": []string{"X-User", "X-None"}},
	{"address": "http://127.0.0.1:9100/auth/ok?x=1", "authResponseHeadersRegex": "^X-Team-",
		"trustForwardHeader":       true,
		"addAuthCookiesToResponse": []string{"auth"}},
	{"address": "http://127.0.0.1:9100/auth/ok", "authRequestHeaders": []string{"X-Case", "Accept", "X-Real-Ip"},
		"trustForwardHeader": false},
	{"address": "http://127.0.0.1:9100/auth/deny"}, {"address": "http://127.0.0.1:9100/auth/login"},
	{"address": "http://127.0.0.1:9100/auth/ok", "forwardBody": true, "maxBodySize": 5, "preserveRequestMethod": true,
		"headerField": "X-Webauth-User"},
	{"address": "http://127.0.0.1:9100/auth/login", "preserveLocationHeader": true, "trustForwardHeader": false},
	{"address": "http://127.0.0.1:9999/auth/none"},
}

// bodies are middlewares that change or limit bodies and answers.
var bodies = []obj{
	{"compress": obj{}}, {"compress": obj{"minResponseBodyBytes": 100}}, {"contentType": obj{}},
	{"compress": obj{"excludedContentTypes": []string{"text/plain"}}},
	{"compress": obj{"includedContentTypes": []string{"application/json"}, "encodings": []string{"gzip"}}},
	{"compress": obj{"encodings": []string{"gzip", "br"}, "defaultEncoding": "gzip"}},
	{"buffering": obj{"maxRequestBodyBytes": 10}}, {"buffering": obj{"maxResponseBodyBytes": 100}},
	{"buffering": obj{"memRequestBodyBytes": 2, "retryExpression": "IsNetworkError() && Attempts() < 2"}},
	{"errors": obj{"status": []string{"404", "500-599"}, "service": "page", "query": "/page/{status}?u={url}"}},
	{"errors": obj{"status": []string{"500-503"}, "service": "page", "query": "/{originalStatus}",
		"statusRewrites": obj{"500": 404, "502-503": 418}}},
	{"retry": obj{"attempts": 2}}, {"retry": obj{"attempts": 3, "initialInterval": "1ms"}},
	{"circuitBreaker": obj{"expression": "ResponseCodeRatio(500, 600, 0, 600) > 0.95"}},
	{"passTLSClientCert": obj{"pem": true, "info": obj{"notAfter": true, "subject": obj{"commonName": true}}}},
	{"grpcWeb": obj{"allowOrigins": []string{"*"}}},
	{"chain": obj{"middlewares": []string{"m0", "m1"}}},
}

// middlewareValues are all middlewares of the generated configurations.
func middlewareValues() []obj {
	var all []obj
	for _, list := range [][]obj{cors, security, custom} {
		for _, v := range list {
			all = append(all, obj{"headers": v})
		}
	}
	for _, v := range forwardAuths {
		all = append(all, obj{"forwardAuth": v})
	}
	for _, list := range [][]obj{paths, redirections, access, bodies} {
		all = append(all, list...)
	}
	return all
}
