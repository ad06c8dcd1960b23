// Runs before anything is painted, so that a page that was set to dark never flashes light.
(() => {
  const KEY = 'skandha.theme';
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; then the system decides
    }
  };
  const apply = (theme) => {
    if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(stored());

  // What the page's own toggle uses: "light", "dark", or "" for what the system says.
  window.skandhaTheme = {
    get: () => root.dataset.theme ?? '',
    dark: () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches),
    set(theme) {
      apply(theme);
      try {
        if (theme) localStorage.setItem(KEY, theme);
        else localStorage.removeItem(KEY);
      } catch {
        // It holds for this page then.
      }
    },
  };
})();
