package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairlead/test/script"
)

// TestLinks checks that every relative link of a page refers to an existing file, and to an existing
// heading of that file if the link names one.
func TestLinks(t *testing.T) {
	pages, err := script.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
		}
		for _, match := range link.FindAllSubmatch(text, -1) {
			if strings.Contains(string(match[1]), "://") {
				continue
			}
			checked++
			if err := checkLink(page, string(match[1])); err != nil {
				t.Errorf("%s has a broken link: %v", filepath.Base(page), err)
			}
		}
	}
	if checked == 0 {
		t.Error("no link found in any page")
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^) ]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// notAnchor matches the characters of a heading that its anchor omits.
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkLink returns an error if a page's relative link has no target.
func checkLink(page, link string) error {
	name, anchor, named := strings.Cut(link, "#")
	target := page
	if name != "" {
		target = filepath.Join(filepath.Dir(page), name)
	}
	if !named {
		_, err := os.Stat(target)
		return err
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	for _, match := range heading.FindAllStringSubmatch(string(text), -1) {
		title := notAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
		if strings.ReplaceAll(title, " ", "-") == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no heading #%s", filepath.Base(target), anchor)
}

// TestCheckLink checks that a missing target is reported.
func TestCheckLink(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# Title\n\n## It's `a`-b, twice\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, found := range map[string]bool{
		"page.md": true, "#title": true, "page.md#its-a-b-twice": true,
		"gone.md": false, "#gone": false, "gone.md#title": false, "page.md#its-a-b": false,
	} {
		if err := checkLink(page, link); (err == nil) != found {
			t.Errorf("link %s: %v, want found %v", link, err, found)
		}
	}
}

// TestReadme checks that the README's first screen has the picture, the two commands and the table
// of results, and that the README links every guide.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const screen = 45 // lines
	lines := strings.SplitAfterN(string(text), "\n", screen+1)
	first := strings.Join(lines[:min(screen, len(lines))], "")
	for _, want := range []string{"](docs/img/paths.svg)", "\n$ make lab\n", "\n$ make test\n",
		"\n<!-- generated:end -->\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first %d lines of the README do not contain %q", screen, want)
		}
	}
	guides, err := filepath.Glob(filepath.Join(root, "docs/guide/*.md"))
	if err != nil || len(guides) == 0 {
		t.Fatalf("no guides: %v", err)
	}
	for _, guide := range guides {
		if link := "](docs/guide/" + filepath.Base(guide) + ")"; !strings.Contains(string(text), link) {
			t.Errorf("the README does not link docs/guide/%s", filepath.Base(guide))
		}
	}
}
