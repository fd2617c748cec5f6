package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// Content security policies. A page loads scripts, styles, images and data only from its own origin. Only the worker
// may run WebAssembly; it may not load or request anything.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	workerPolicy = "default-src 'none'; script-src 'wasm-unsafe-eval'; base-uri 'none'; frame-ancestors 'none'"
	assetPolicy  = "default-src 'none'; frame-ancestors 'none'"
)

const workerFile = "hash.worker.js"

// PageHeader returns the headers that pages have in addition to the headers of every answer.
func PageHeader() http.Header {
	return http.Header{"Content-Security-Policy": {pagePolicy}, "Cross-Origin-Opener-Policy": {"same-origin"}}
}

// Asset is a file that pages load.
type Asset struct {
	Body        []byte
	ContentType string
	Policy      string // Content-Security-Policy
}

var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	".ico": "image/x-icon", ".png": "image/png",
}

//go:embed assets
var assetFiles embed.FS

// Files returns the files that pages load under their original names, by which scripts import each other.
func Files() (fs.FS, error) { return fs.Sub(assetFiles, "assets") }

// assets has each file under a name with a hash of its bytes. A file may be cached for good, because changed content
// has another address.
type assets struct {
	files map[string]Asset  // by hashed name
	names map[string]string // hashed name by name
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string]Asset{}, names: map[string]string{}}
	entries, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if err := a.add(entry.Name()); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// imported finds the imports of other scripts, static and dynamic.
var imported = regexp.MustCompile(`(from |import |import\()"\./([a-z0-9.]+)"`)

// add adds a file once, after the files that it imports, and replaces their names by the hashed ones. Imports must not
// be circular.
func (a *assets) add(name string) error {
	if a.names[name] != "" {
		return nil
	}
	body, err := assetFiles.ReadFile(path.Join("assets", name))
	if err != nil {
		return err
	}
	extension := path.Ext(name)
	if extension == ".js" && name != workerFile {
		for _, found := range imported.FindAllSubmatch(body, -1) {
			if err := a.add(string(found[2])); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		body = imported.ReplaceAllFunc(body, func(found []byte) []byte {
			parts := imported.FindSubmatch(found)
			return fmt.Appendf(nil, `%s"./%s"`, parts[1], a.names[string(parts[2])])
		})
	}
	sum := sha256.Sum256(body)
	hashed := strings.TrimSuffix(name, extension) + "." + hex.EncodeToString(sum[:8]) + extension
	asset := Asset{Body: body, ContentType: assetTypes[extension], Policy: assetPolicy}
	if name == workerFile {
		asset.Policy = workerPolicy
	}
	a.files[hashed], a.names[name] = asset, hashed
	return nil
}

// Icon returns the icon for clients that do not read which icon a page names.
func Icon() ([]byte, error) { return assetFiles.ReadFile("assets/favicon.ico") }

// AssetRoute is the route of assets.
const AssetRoute = "/assets/{name}"

func (a *assets) url(name string) string {
	return strings.Replace(AssetRoute, "{name}", a.names[name], 1)
}
