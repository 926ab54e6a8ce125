package rule

import "testing"

func TestCleanPath(t *testing.T) {
	for escaped, want := range map[string]string{
		"":                     "/",
		"/":                    "/",
		"*":                    "*",
		"foo":                  "/foo",
		"/foo/bar":             "/foo/bar",
		"/foo/bar/":            "/foo/bar/",
		"/./foo/../bar//":      "/bar/",
		"/foo//bar":            "/foo/bar",
		"//foo":                "/foo",
		"/../../etc":           "/etc",
		"/a/..":                "/",
		"/a/../":               "/",
		"/a/b/.":               "/a/b",
		"/a/%2e%2E/b":          "/b",
		"/a/%2e":               "/a",
		"/.well-known/x":       "/.well-known/x",
		"/%41%7e%2d":           "/A~-",
		"/a%2fb%3f%23":         "/a%2Fb%3F%23",
		"/a%2f..%2fb":          "/a%2F..%2Fb",
		"/api..%2fx":           "/api..%2Fx",
		"/%c3%a9 é":            "/%C3%A9%20%C3%A9",
		"/a;b=c/@:!$&'()*+,":   "/a;b=c/@:!$&'()*+,",
		"/%25%32%65":           "/%252e",
		"/a\\..\\b\"<>^`{|}\n": "/a%5C..%5Cb%22%3C%3E%5E%60%7B%7C%7D%0A",
		"/%00":                 "/%00",
	} {
		got, err := CleanPath(escaped)
		if err != nil || got != want {
			t.Errorf("CleanPath(%q) = %q, %v, want %q", escaped, got, err, want)
		}
		if again, err := CleanPath(got); err != nil || again != got {
			t.Errorf("CleanPath(%q) = %q, %v, want it unchanged", got, again, err)
		}
	}
	for _, escaped := range []string{"/a#b", "/a?b", "/%", "/%2", "/%zz", "/%2g"} {
		if got, err := CleanPath(escaped); err == nil {
			t.Errorf("CleanPath(%q) = %q, want an error", escaped, got)
		}
	}
}

func TestCleanPathOfACleanPathDoesNotAllocate(t *testing.T) {
	if allocs := testing.AllocsPerRun(100, func() { _, _ = CleanPath("/shop/items/42") }); allocs > 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}
