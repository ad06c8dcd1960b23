// Runs before the first paint, so that a dark page never flashes light.
(() => {
  const KEY = 'skandha.theme';
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; then the system's setting is used
    }
  };
  const apply = (theme) => {
    if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(stored());

  // For the page's toggle: "light", "dark", or "" for the system's setting.
  window.skandhaTheme = {
    get: () => root.dataset.theme ?? '',
    dark: () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches),
    set(theme) {
      apply(theme);
      try {
        if (theme) localStorage.setItem(KEY, theme);
        else localStorage.removeItem(KEY);
      } catch {
        // Then it lasts only until the page is closed.
      }
    },
  };
})();
