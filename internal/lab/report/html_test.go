package report

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"

	"github.com/google/go-cmp/cmp"
)

func htmlOf(t *testing.T, r *result.Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestPageIsSelfContained: the page has no address, import or link, and no script
// except the data.
func TestPageIsSelfContained(t *testing.T) {
	text := htmlOf(t, synthPublish.report())
	for _, bad := range []string{`https?://`, `(?i)<link`, `(?i)\bsrc=`, `@import`, `url\(`, `ZgotmplZ`, `<script>`} {
		if at := regexp.MustCompile(bad).FindStringIndex(text); at != nil {
			t.Errorf("the page has %s: …%s…", bad, text[max(0, at[0]-40):min(len(text), at[1]+60)])
		}
	}
}

func TestPageContainsReport(t *testing.T) {
	want := synthQuick.report()
	want.Unavailable[0].Reason = `</script><script>alert("x")</script> & more`
	text := htmlOf(t, want)
	_, rest, _ := strings.Cut(text, `<script type="application/json" id="fairlead-report">`)
	raw, _, found := strings.Cut(rest, "</script>")
	if !found || strings.Count(text, "<script") != 1 {
		t.Fatalf("%d script elements", strings.Count(text, "<script"))
	}
	var got result.Report
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Error(diff)
	}
}

func TestPageDescribesItsFigures(t *testing.T) {
	text := htmlOf(t, synthQuick.report())
	for _, want := range []string{
		"<h1>How much does publishing a container&#39;s port cost?</h1>",
		`<p class="verdict better">Good run: believe its ratios, in which two measurements of host `,
		"<li>proxy is worse than host in CPU (2.96\u00a0×), ",
		"<li>nat is worse than host in CPU (1.14\u00a0×), ",
		"<li>routed is not distinguishable from host in ",
		"A/A noise floor ±", " to ±1.7 % (small packets)", "the kernel lacks CONFIG_BPF_SYSCALL",
		"steal 7.1 % exceeds 2 %", "fq_codel",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing on the page: %q", want)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg[^>]*>.*?</svg>`).FindAllString(text, -1) {
		if !strings.Contains(svg, `role="img"`) || !strings.Contains(svg, "<title id=") ||
			!strings.Contains(svg, "<desc id=") {
			t.Errorf("a drawing without a description: %.120s", svg)
		}
	}
}

func TestPageShowsWhatEachHopAdds(t *testing.T) {
	text := htmlOf(t, synthWaterfall.report())
	for _, want := range []string{"What each hop adds", `<th scope="row">&#43; NAT</th>`, "short-cut over host",
		"round trip, median latency, step by step.", `class="step worse"`, `class="step same"`} {
		if !strings.Contains(text, want) {
			t.Errorf("missing on the page: %q", want)
		}
	}
	if strings.Contains(htmlOf(t, synthQuick.report()), "What each hop adds") {
		t.Error("the page of a suite without steps shows steps")
	}
}

func TestPageOfEmptyReport(t *testing.T) {
	if text := htmlOf(t, &result.Report{Suite: "quick"}); !strings.Contains(text, "Nothing was measured.") {
		t.Error("an empty report has no verdict")
	}
}

// TestPageInChromium renders the page as a reader sees it.
func TestPageInChromium(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(htmlOf(t, synthQuick.report())), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := chromium(t, file, "--dump-dom")
	// Five ratios, one latency, four ledgers, five timelines.
	if n := bytes.Count(dom, []byte("<svg")); n != 15 {
		t.Errorf("%d drawings in the document, want 15", n)
	}
	light, dark := screenshot(t, file), screenshot(t, file, "--blink-settings=preferredColorScheme=0")
	if l, d := brightness(light.At(5, 5)), brightness(dark.At(5, 5)); l < 0xe000 || d > 0x3000 {
		t.Errorf("the background has brightness %#x in the light scheme and %#x in the dark one", l, d)
	}
	for name, picture := range map[string]image.Image{"light": light, "dark": dark} {
		if n := colors(picture); n < 50 {
			t.Errorf("the %s picture has %d colours; it is blank or nearly so", name, n)
		}
	}
	pdf := filepath.Join(t.TempDir(), "page.pdf")
	chromium(t, file, "--print-to-pdf="+pdf)
	if text, err := os.ReadFile(pdf); err != nil || !bytes.HasPrefix(text, []byte("%PDF")) {
		t.Errorf("print the page: %v", err)
	}
}

// TestPageOnScreens renders pages on a telephone and on a desktop, with all tables
// open. No table may be wider than its screen, so that no column is cut off.
func TestPageOnScreens(t *testing.T) {
	dir := t.TempDir()
	publish := synthPublish.report()
	publish.Published[0].Note = "100 × wget --recursive, one more every second, four Raspberry Pis with Traefik"
	frame := `<!doctype html>` + "\n"
	for _, page := range []string{"quick", "publish", "failovers"} {
		for _, width := range []string{"390", "400", "1440"} {
			frame += `<iframe src="` + page + `.html" style="width:` + width + `px;height:3000px;border:0"></iframe>`
		}
	}
	frame += `<script>
	onload = () => {
		const wide = []
		let tables = 0
		for (const frame of document.querySelectorAll("iframe")) {
			const page = frame.contentDocument
			page.querySelectorAll("details").forEach(e => e.open = true)
			tables += page.querySelectorAll("table").length
			for (const e of page.querySelectorAll("html, .scroll"))
				if (e.scrollWidth > e.clientWidth + 1)
					wide.push(frame.src.split("/").pop() + " at " + frame.style.width + ": " + e.scrollWidth)
		}
		document.body.dataset.tables = tables
		document.body.dataset.wide = wide.join("; ")
		document.querySelectorAll("iframe").forEach(e => e.remove())
	}</script>`
	for name, text := range map[string]string{"quick": htmlOf(t, synthQuick.report()), "frame": frame,
		"publish": htmlOf(t, publish), "failovers": htmlOf(t, failovers())} {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dom := chromium(t, filepath.Join(dir, "frame.html"), "--allow-file-access-from-files", "--dump-dom")
	if !bytes.Contains(dom, []byte(`data-tables="`)) || bytes.Contains(dom, []byte(`data-tables="0"`)) {
		t.Fatalf("the pages have no tables to measure:\n%s", dom)
	}
	if !bytes.Contains(dom, []byte(`data-wide=""`)) {
		t.Errorf("a part of a page is wider than the screen:\n%s", dom)
	}
}

func TestFormatTick(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.5", 1000: "1 000", -1000: "-1 000", 150_000: "150 000",
		-100: "-100", 2.25: "2.25"} {
		if got := formatTick(v); got != want {
			t.Errorf("a tick at %v is written %q, want %q", v, got, want)
		}
	}
}

// chromium runs the browser without a window and returns its output. All of its
// processes end before it returns, so that none writes into the directory while it
// is removed.
func chromium(t *testing.T, file string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("chromium is not installed, but the test must render the page: install it (make test does)")
	}
	args = slices.Concat([]string{
		"--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", `chromium "$@"; exit $?`, "sh", "--headless",
		"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir=" + t.TempDir(), "--window-size=1200,3000",
	}, args, []string{"file://" + file})
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run chromium %v: %v\n%s", args, err, errs.Bytes())
	}
	return out
}

func screenshot(t *testing.T, file string, args ...string) image.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.png")
	chromium(t, file, append(args, "--screenshot="+path)...)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func brightness(c color.Color) uint32 {
	r, g, b, _ := c.RGBA()
	return (r + g + b) / 3
}

func colors(picture image.Image) int {
	seen := map[color.Color]bool{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 2 {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			seen[picture.At(x, y)] = true
		}
	}
	return len(seen)
}
